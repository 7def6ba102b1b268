"""The role that delivers, and the networks it may reach, by the environment."""

from dataclasses import dataclass

from penstock_core.push.targets.public_address import Network, parse_networks


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlaces:
    """The role that delivers, which the process may assume, and private networks whose endpoints it may call.

    Only the stage `local` has such networks.
    """

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
