"""The role that delivers, and the networks it may reach, by the environment."""

from dataclasses import dataclass

from penstock_core.push.public_address import Network, parse_networks


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlaces:
    """The role that delivers, and the private networks whose endpoints it may call: those of the stage `local` only."""

    role_arn: str
    private_networks: tuple[Network, ...] = ()


def parse_target_places(text: str | None) -> TargetPlaces | None:
    """The places of `<role's ARN>` or `<role's ARN>,<network>,<network>…`, None for no text.

    Raises INVALID_CONFIG for a part that is no network.
    """
    if not text:
        return None
    role_arn, _, networks = text.partition(",")
    return TargetPlaces(role_arn=role_arn, private_networks=parse_networks(networks))
