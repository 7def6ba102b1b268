"""Committed offsets of groups: per group and topic, never of a topic that only shares the name."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import SeenCommit
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_offsets
from penstock_service.groups.describe_group import describe_group
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import delete_topic
from tests.support.group_member import GroupMember
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    filled_topic,
    new_topic,
)


def _commit(instance: Instance, offset: int, topic: str = "orders", partition: int = 0, group: str = "billing") -> None:
    [error] = commit_offsets(instance, group, [CommitEntry(topic=topic, partition=partition, offset=offset)])
    if error is not None:
        raise error


def _committed(instance: Instance, topic: str | None = None, group: str = "billing") -> list[tuple[str, int, int]]:
    found = committed_offsets(instance, group, topic)
    return [(item.topic, item.partition.partition, item.offset) for item in found]


def test_committed_is_what_the_group_committed_last_sorted(instance: Instance) -> None:
    filled_topic(instance, "orders", 12)
    filled_topic(instance, "bills")
    for offset, topic, partition in [(5, "orders", 10), (1, "orders", 2), (9, "bills", 0), (14, "orders", 10)]:
        _commit(instance, offset, topic, partition)
    _commit(instance, 77, group="shipping")
    assert _committed(instance) == [("bills", 0, 9), ("orders", 2, 1), ("orders", 10, 14)]
    assert _committed(instance, "orders") == [("orders", 2, 1), ("orders", 10, 14)]
    assert _committed(instance, group="shipping") == [("orders", 0, 77)]
    assert _committed(instance, group="nobody") == []


def test_committed_keeps_metadata_and_time(instance: Instance) -> None:
    filled_topic(instance)
    commit_offsets(instance, "billing", [CommitEntry(topic="orders", partition=0, offset=0, metadata="zürich")])
    [found] = committed_offsets(instance, "billing", "orders")
    assert (found.metadata, found.committed_at_ms) == ("zürich", instance.clock.now_ms())


def test_commit_answers_each_entry_when_some_are_bad(instance: Instance) -> None:
    filled_topic(instance, partitions=2)
    long = "ä" * (limits.COMMIT_METADATA_BYTES_MAX // 2)
    entries = [
        CommitEntry(topic="orders", partition=0, offset=100, metadata=long),
        CommitEntry(topic="missing", partition=0, offset=1),
        CommitEntry(topic="orders", partition=5, offset=1),
        CommitEntry(topic="orders", partition=1, offset=1, metadata=long + "x"),
        CommitEntry(topic="a b", partition=0, offset=1),
    ]
    codes = [error and error.code.name for error in commit_offsets(instance, "billing", entries)]
    assert codes == [None, "UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "INVALID_REQUEST", "INVALID_NAME"]
    assert _committed(instance) == [("orders", 0, 100)]


def test_commit_tells_only_of_the_entry_that_storage_refused(instance: Instance) -> None:
    filled_topic(instance, partitions=2)

    def commit(original: Any, group: str, committed: Any, *how: Any) -> None:
        if committed.partition.partition == 0:
            raise UNAVAILABLE
        original(group, committed, *how)

    faulty = another_instance(instance, groups=Intercepted(instance.stores.groups, commit=commit))
    entries = [CommitEntry(topic="orders", partition=number, offset=3) for number in range(2)]
    assert commit_offsets(faulty, "billing", entries) == (UNAVAILABLE, None)
    assert _committed(instance) == [("orders", 1, 3)]


@pytest.mark.parametrize("stale_reads", [False, True])
def test_committed_forgets_the_old_topic_when_it_was_created_again(instance: Instance, stale_reads: bool) -> None:
    filled_topic(instance)
    other = another_instance(instance)
    _commit(other, 43)
    reader = other if stale_reads else another_instance(instance)
    delete_topic(instance, "orders")
    assert _committed(reader) == []
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
        _committed(reader, "orders")
    filled_topic(instance)
    assert _committed(reader) == _committed(reader, "orders") == []


def test_committed_shows_the_new_topics_offset_when_the_cache_has_the_old_one(instance: Instance) -> None:
    filled_topic(instance)
    stale = another_instance(instance)
    _commit(stale, 43)
    delete_topic(instance, "orders")
    filled_topic(instance)
    _commit(instance, 7)
    assert _committed(stale) == _committed(stale, "orders") == [("orders", 0, 7)]


def test_commit_goes_to_the_new_topic_when_the_instance_remembers_the_old_one(instance: Instance) -> None:
    filled_topic(instance)
    stale = another_instance(instance)
    _commit(stale, 43)
    delete_topic(instance, "orders")
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
        _commit(stale, 44)
    filled_topic(instance)
    stale.topic_cache.get("orders")
    delete_topic(instance, "orders")
    filled_topic(instance)
    _commit(stale, 3)
    assert _committed(instance) == [("orders", 0, 3)]


def test_commit_is_refused_when_a_partition_stands_twice(instance: Instance) -> None:
    filled_topic(instance, partitions=2)
    entries = [CommitEntry(topic="orders", partition=number, offset=9) for number in (0, 1, 0)]
    with pytest.raises(PenstockError, match="partition 0 of topic 'orders' stands 2 times") as caught:
        commit_offsets(instance, "billing", entries)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert _committed(instance) == []


def test_commit_is_refused_when_it_has_too_many_offsets(instance: Instance) -> None:
    new_topic(instance, partitions=1_000)
    entries = [CommitEntry(topic="orders", partition=number, offset=0) for number in range(1_000)]
    assert commit_offsets(instance, "billing", entries) == (None,) * limits.COMMIT_OFFSETS_MAX
    with pytest.raises(PenstockError, match="1001 offsets"):
        commit_offsets(instance, "billing", [*entries, CommitEntry(topic="other", partition=0, offset=1)])


@pytest.mark.parametrize("group", ["", "a b", ".", "x" * 250, "a#b"])
def test_commit_and_committed_refuse_a_bad_group_name(instance: Instance, group: str) -> None:
    filled_topic(instance)
    for call in (lambda: _commit(instance, 1, group=group), lambda: _committed(instance, group=group)):
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_NAME


def test_commit_costs_a_read_per_topic_one_of_heads_and_an_update_per_offset(instance: Instance) -> None:
    filled_topic(instance, "orders", 6)
    filled_topic(instance, "bills", 6)
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    commit_offsets(
        counted,
        "billing",
        [CommitEntry(topic=topic, partition=number, offset=1) for topic in ("orders", "bills") for number in range(6)],
    )
    made = {"memberships.is_registered": 2, "memberships.register": 1}
    assert counts == {"topics.get": 2, "log.heads": 1, "groups.commit": 24, **made}, "each is refused once"
    counts.clear()
    _commit(counted, 2)
    assert counts == {"topics.get": 1, "log.heads": 1, "groups.commit": 1}
    counts.clear()
    committed_offsets(counted, "billing", None)
    assert counts == {"topics.get": 2, "groups.lease_page": 1}
    counts.clear()
    committed_offsets(counted, "billing", "orders")
    assert counts == {"topics.get": 1, "groups.lease_page": 1}


def test_commit_without_a_member_may_be_ahead_of_the_end_and_has_no_lag(instance: Instance) -> None:
    filled_topic(instance, records=7)
    _commit(instance, limits.COMMIT_OFFSET_MAX)
    [partition] = describe_group(instance, "billing").partitions
    assert (partition.lease.offset, partition.lag) == (limits.COMMIT_OFFSET_MAX, 0)


@pytest.mark.parametrize("offset", [limits.COMMIT_OFFSET_MAX + 1, limits.OFFSET_MAX])
def test_commit_is_refused_alone_when_no_log_reaches_its_offset(instance: Instance, offset: int) -> None:
    filled_topic(instance, partitions=2, records=7)
    entries = [CommitEntry(topic="orders", partition=number, offset=each) for number, each in ((0, offset), (1, 5))]
    error, good = commit_offsets(instance, "billing", entries)
    assert (error and error.code, good) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    member = GroupMember(instance, "a")
    member.settle()
    with pytest.raises(PenstockError, match="OFFSET_OUT_OF_RANGE"):
        member.commit(0, offset)
    assert _committed(instance) == [("orders", 1, 5)]


def test_leader_epoch_is_kept_until_a_commit_names_another_or_none(instance: Instance) -> None:
    filled_topic(instance, records=7)
    for epoch in (3, 4, None):
        entry = CommitEntry(topic="orders", partition=0, offset=5, leader_epoch=epoch)
        assert [*commit_offsets(instance, "billing", [entry])] == [None]
        [found] = committed_offsets(instance, "billing", None)
        assert found.leader_epoch == epoch


def _behind(instance: Instance, offset: int) -> SeenCommit:
    """The group's commit, which a commit of this offset is told of."""
    with pytest.raises(PenstockError, match="OFFSET_BEHIND") as caught:
        _commit(instance, offset)
    facts = caught.value.facts
    return SeenCommit(offset=facts["committed_offset"], committed_at_ms=facts["committed_at_ms"])


def test_commit_that_comes_late_changes_nothing(instance: Instance) -> None:
    filled_topic(instance)
    _commit(instance, 5)
    _commit(instance, 10)
    _behind(instance, 5)
    assert _committed(instance) == [("orders", 0, 10)]


def test_commit_goes_back_from_the_commit_that_it_names_and_its_late_twin_does_not(
    instance: Instance, clock: SteppedClock
) -> None:
    filled_topic(instance)
    _commit(instance, 10)
    back = [CommitEntry(topic="orders", partition=0, offset=5, back_from=_behind(instance, 5))]
    assert commit_offsets(instance, "billing", back) == (None,)
    assert commit_offsets(instance, "billing", back) == (None,), "once more, as after a lost answer"
    clock.sleep_ms(1)
    _commit(instance, 10)  # the same offset again, and another commit
    [error] = commit_offsets(instance, "billing", back)
    assert error is not None
    assert error.code is ErrorCode.OFFSET_BEHIND
    assert _committed(instance) == [("orders", 0, 10)]


def test_commit_is_refused_when_its_topic_was_made_anew(instance: Instance) -> None:
    old = instance.topic_cache.read_through(filled_topic(instance))
    stale = another_instance(instance)
    stale.topic_cache.get("orders")
    delete_topic(instance, "orders")
    new = instance.topic_cache.read_through(filled_topic(instance))
    for each in (instance, stale):
        entry = CommitEntry(topic="orders", partition=0, offset=5, topic_id=old.topic_id)
        [error] = commit_offsets(each, "billing", [entry])
        assert error is not None
        assert (error.code, error.facts) == (ErrorCode.UNKNOWN_TOPIC_ID, {"topic_id": new.topic_id})
        assert commit_offsets(each, "billing", [replace(entry, topic_id=new.topic_id)]) == (None,)
