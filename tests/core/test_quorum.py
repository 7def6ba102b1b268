import pytest

from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks, parse_acks, zones_needed


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
def test_leader_needs_one_zone(acks: Acks) -> None:
    assert zones_needed(acks, 3, 3) == 1


@pytest.mark.parametrize(("configured", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_quorum_is_a_majority_of_the_configured_zones(configured: int, needed: int) -> None:
    for in_sync in range(configured + 1):
        assert zones_needed(Acks.QUORUM, configured, in_sync) == needed


@pytest.mark.parametrize(("in_sync", "needed"), [(3, 3), (2, 2), (1, 2), (0, 2)])
def test_all_needs_every_zone_in_sync_and_a_quorum_at_least(in_sync: int, needed: int) -> None:
    assert zones_needed(Acks.ALL, 3, in_sync) == needed


def test_parse_acks_knows_the_words_of_the_api() -> None:
    assert [parse_acks(text) for text in ("none", "leader", "quorum", "all")] == list(Acks)


@pytest.mark.parametrize("text", ["ALL", "1", 1, -1, None, "", []])
def test_parse_acks_refuses_anything_else_with_the_choices(text: object) -> None:
    with pytest.raises(PenstockError, match="none, leader, quorum, all"):
        parse_acks(text)
