"""What an operator who died has left closed opens, and a move is made again, once."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.index.heads import move_again_if_closed, open_partitions
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic
from tests.support.interleaving import catch_kill, killed_at
from tests.support.refusals import refused
from tests.support.service import appended, head_of, new_topic, send

CLOSED = PenstockError(ErrorCode.PARTITION_CLOSED, "closed")


def test_generation_that_comes_is_opened(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2, ordering_on_change="wait")
    with catch_kill():
        alter_topic(killed_at(instance, 2, is_applied=True), topic, 1, {})
    open_partitions(instance, topic)
    assert instance.topic_cache.get(topic).generations == (0, 2)
    assert send(instance, topic, "a", partition=2) == appended(0, 1)


def test_head_that_was_left_closed_is_opened(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    alter_topic(instance, topic, 1, {})
    with catch_kill():
        alter_topic(killed_at(instance, 1, is_applied=True), topic, 2, {})
    assert head_of(instance, topic, 1).is_closed
    open_partitions(instance, topic)
    assert not head_of(instance, topic, 1).is_closed


@pytest.mark.parametrize("refusals", [[], [CLOSED], [CLOSED, CLOSED], [PenstockError(ErrorCode.THROTTLED, "slow")]])
def test_move_is_made_again_once_after_a_refusal_by_a_closed_partition(
    instance: Instance, refusals: list[PenstockError]
) -> None:
    names, left = [new_topic(instance)], [*refusals]

    def move() -> str:
        if left:
            raise left.pop(0)
        return "moved"

    if refusals in ([], [CLOSED]):
        assert move_again_if_closed(instance, names, move) == "moved"
    else:
        refused(refusals[-1].code, lambda: move_again_if_closed(instance, names, move))
    assert left == []
