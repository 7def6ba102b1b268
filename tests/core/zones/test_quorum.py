import pytest

from penstock_core.errors import PenstockError
from penstock_core.zones.zone_state import Acks, majority_of, parse_acks


@pytest.mark.parametrize(("configured", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_quorum_is_a_majority_of_the_configured_zones(configured: int, majority: int) -> None:
    assert majority_of(configured) == majority


def test_parse_acks_knows_the_words_of_the_api() -> None:
    assert [parse_acks(text) for text in ("none", "one", "quorum", "all")] == list(Acks)


@pytest.mark.parametrize("alias", ["leader", "1"])
def test_parse_acks_takes_the_names_that_kafka_has_for_one(alias: str) -> None:
    assert parse_acks(alias) is Acks.ONE


@pytest.mark.parametrize("text", ["ALL", "0", 1, -1, None, "", []])
def test_parse_acks_refuses_anything_else_with_the_choices(text: object) -> None:
    with pytest.raises(PenstockError, match="none, one, quorum, all"):
        parse_acks(text)
