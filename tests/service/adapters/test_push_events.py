"""The store in memory keeps a list of push events in place of a stream."""

from typing import cast

from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.ports.log import LogIndex
from tests.support.refs import ref_at

KEY = PartitionKey(TopicId("t1"), Partition(0))


def told(log: LogIndex) -> list[int]:
    return [each.next_offset for each in cast(MemoryLogIndex, log).push_events()]


def woken(log: LogIndex, times: int) -> None:
    log.create_head(KEY)
    for number in range(times):
        assert log.arm_push(KEY, Offset(number))[0]
        log.append(KEY, ref_at(number), 0)


def test_events_come_in_order_until_they_are_forgotten() -> None:
    log = MemoryLogIndex()
    woken(log, 3)
    assert told(log) == [1, 2, 3]
    log.forget_push_events(2)
    assert told(log) == [3]
    log.delete_head(KEY)
    assert told(log) == [3], "no subscription waited"
