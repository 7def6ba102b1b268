import pytest

from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks, majority_of, parse_acks


@pytest.mark.parametrize(("configured", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_quorum_is_a_majority_of_the_configured_zones(configured: int, majority: int) -> None:
    assert majority_of(configured) == majority


def test_parse_acks_knows_the_words_of_the_api() -> None:
    assert [parse_acks(text) for text in ("none", "leader", "quorum", "all")] == list(Acks)


@pytest.mark.parametrize("text", ["ALL", "1", 1, -1, None, "", []])
def test_parse_acks_refuses_anything_else_with_the_choices(text: object) -> None:
    with pytest.raises(PenstockError, match="none, leader, quorum, all"):
        parse_acks(text)
