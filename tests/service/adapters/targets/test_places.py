import pytest

from penstock_core.errors import ErrorCode
from penstock_core.push.targets.public_address import parse_networks
from penstock_service.adapters.targets.aws_targets import TargetPlaces, parse_target_places
from tests.support.refusals import refused

ROLE = "arn:aws:iam::123456789012:role/Penstock-Deliver"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (None, None),
        ("", None),
        (ROLE, TargetPlaces(role_arn=ROLE)),
        (
            f"{ROLE},127.0.0.0/8,::1/128",
            TargetPlaces(role_arn=ROLE, private_networks=parse_networks("127.0.0.0/8,::1/128")),
        ),
    ],
)
def test_environment_names_the_role_and_private_networks(text: str | None, places: TargetPlaces | None) -> None:
    assert parse_target_places(text) == places


def test_network_that_is_none_is_refused() -> None:
    refused(ErrorCode.INVALID_CONFIG, lambda: parse_target_places(f"{ROLE},everything"))
