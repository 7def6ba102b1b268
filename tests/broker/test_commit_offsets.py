"""Committed offsets of groups: per group and topic, never of a topic that only shares the name."""

from collections import Counter
from typing import Any

import pytest

from penstock_broker.broker import Broker
from penstock_broker.commit_offsets import CommitEntry, commit_offsets
from penstock_broker.committed_offsets import committed_offsets
from penstock_broker.delete_topic import delete_topic
from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from tests.broker.setting import UNAVAILABLE, Intercepted, another_instance, counted_broker, new_topic


def _commit(broker: Broker, offset: int, topic: str = "orders", partition: int = 0, group: str = "billing") -> None:
    [error] = commit_offsets(broker, group, [CommitEntry(topic=topic, partition=partition, offset=offset)])
    if error is not None:
        raise error


def _committed(broker: Broker, topic: str | None = None, group: str = "billing") -> list[tuple[str, int, int]]:
    found = committed_offsets(broker, group, topic)
    return [(item.topic, item.partition.partition, item.offset) for item in found]


def test_committed_is_what_the_group_committed_last_sorted(broker: Broker) -> None:
    new_topic(broker, "orders", 12)
    new_topic(broker, "bills")
    for offset, topic, partition in [(5, "orders", 10), (1, "orders", 2), (9, "bills", 0), (4, "orders", 10)]:
        _commit(broker, offset, topic, partition)
    _commit(broker, 77, group="shipping")
    assert _committed(broker) == [("bills", 0, 9), ("orders", 2, 1), ("orders", 10, 4)]
    assert _committed(broker, "orders") == [("orders", 2, 1), ("orders", 10, 4)]
    assert _committed(broker, group="shipping") == [("orders", 0, 77)]
    assert _committed(broker, group="nobody") == []


def test_committed_keeps_metadata_and_time(broker: Broker) -> None:
    new_topic(broker)
    commit_offsets(broker, "billing", [CommitEntry(topic="orders", partition=0, offset=0, metadata="zürich")])
    [found] = committed_offsets(broker, "billing", "orders")
    assert (found.metadata, found.committed_at_ms) == ("zürich", broker.clock.now_ms())


def test_commit_answers_each_entry_when_some_are_bad(broker: Broker) -> None:
    new_topic(broker, partitions=2)
    long = "ä" * (limits.COMMIT_METADATA_BYTES_MAX // 2)
    entries = [
        CommitEntry(topic="orders", partition=0, offset=limits.OFFSET_MAX, metadata=long),
        CommitEntry(topic="missing", partition=0, offset=1),
        CommitEntry(topic="orders", partition=5, offset=1),
        CommitEntry(topic="orders", partition=1, offset=1, metadata=long + "x"),
        CommitEntry(topic="a b", partition=0, offset=1),
    ]
    codes = [error and error.code.name for error in commit_offsets(broker, "billing", entries)]
    assert codes == [None, "UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "INVALID_REQUEST", "INVALID_NAME"]
    assert _committed(broker) == [("orders", 0, limits.OFFSET_MAX)]


def test_commit_tells_only_of_the_entry_that_storage_refused(broker: Broker) -> None:
    new_topic(broker, partitions=2)

    def commit(original: Any, group: str, committed: Any, *how: Any) -> None:
        if committed.partition.partition == 0:
            raise UNAVAILABLE
        original(group, committed, *how)

    faulty = another_instance(broker, groups=Intercepted(broker.groups, commit=commit))
    entries = [CommitEntry(topic="orders", partition=number, offset=3) for number in range(2)]
    assert commit_offsets(faulty, "billing", entries) == [UNAVAILABLE, None]
    assert _committed(broker) == [("orders", 1, 3)]


@pytest.mark.parametrize("stale_reads", [False, True])
def test_committed_forgets_the_old_topic_when_it_was_created_again(broker: Broker, stale_reads: bool) -> None:
    new_topic(broker)
    other = another_instance(broker)
    _commit(other, 43)
    reader = other if stale_reads else another_instance(broker)
    delete_topic(broker, "orders")
    assert _committed(reader) == []
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
        _committed(reader, "orders")
    new_topic(broker)
    assert _committed(reader) == _committed(reader, "orders") == []


def test_committed_shows_the_new_topics_offset_to_an_instance_that_remembers_the_old_one(broker: Broker) -> None:
    new_topic(broker)
    stale = another_instance(broker)
    _commit(stale, 43)
    delete_topic(broker, "orders")
    new_topic(broker)
    _commit(broker, 7)
    assert _committed(stale) == _committed(stale, "orders") == [("orders", 0, 7)]


def test_commit_goes_to_the_new_topic_when_the_instance_remembers_the_old_one(broker: Broker) -> None:
    new_topic(broker)
    stale = another_instance(broker)
    _commit(stale, 43)
    delete_topic(broker, "orders")
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
        _commit(stale, 44)
    new_topic(broker)
    stale.directory.find("orders")
    delete_topic(broker, "orders")
    new_topic(broker)
    _commit(stale, 3)
    assert _committed(broker) == [("orders", 0, 3)]


def test_commit_is_refused_when_a_partition_stands_twice(broker: Broker) -> None:
    new_topic(broker, partitions=2)
    entries = [CommitEntry(topic="orders", partition=number, offset=9) for number in (0, 1, 0)]
    with pytest.raises(PenstockError, match="partition 0 of topic 'orders' stands 2 times") as caught:
        commit_offsets(broker, "billing", entries)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert _committed(broker) == []


def test_commit_is_refused_when_it_has_too_many_offsets(broker: Broker) -> None:
    new_topic(broker, partitions=1_000)
    entries = [CommitEntry(topic="orders", partition=number, offset=1) for number in range(1_000)]
    assert commit_offsets(broker, "billing", entries) == [None] * limits.COMMIT_OFFSETS_MAX
    with pytest.raises(PenstockError, match="1001 offsets"):
        commit_offsets(broker, "billing", [*entries, CommitEntry(topic="other", partition=0, offset=1)])


@pytest.mark.parametrize("group", ["", "a b", ".", "x" * 250, "a#b"])
def test_commit_and_committed_refuse_a_bad_group_name(broker: Broker, group: str) -> None:
    new_topic(broker)
    for call in (lambda: _commit(broker, 1, group=group), lambda: _committed(broker, group=group)):
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_NAME


def test_commit_costs_a_read_per_topic_and_an_update_per_offset(broker: Broker) -> None:
    new_topic(broker, "orders", 6)
    new_topic(broker, "bills", 6)
    counts: Counter[str] = Counter()
    counted = counted_broker(broker, counts)
    commit_offsets(
        counted,
        "billing",
        [CommitEntry(topic=topic, partition=number, offset=1) for topic in ("orders", "bills") for number in range(6)],
    )
    assert counts == {"topics.get": 2, "groups.commit": 12, "memberships.register": 1}
    counts.clear()
    committed_offsets(counted, "billing", None)
    assert counts == {"topics.get": 2, "groups.committed": 1}
    counts.clear()
    committed_offsets(counted, "billing", "orders")
    assert counts == {"topics.get": 1, "groups.committed": 1}
