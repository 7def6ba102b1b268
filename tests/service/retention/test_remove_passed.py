"""Retention by acknowledgement: what all readers have passed goes, and nothing else, whoever comes meanwhile."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from penstock_core.errors import PenstockError
from penstock_core.groups.lease import SeenCommit
from penstock_core.ids import GroupName, Offset
from penstock_core.limits import (
    ACKNOWLEDGED_MS_MIN,
    APPEND_MS_MAX,
    INDEX_EXPIRY_PAGES,
    READERS_SETTLED_MS,
    TAIL_ROLL_REFS,
    UNLIMITED,
)
from penstock_core.log.index import Head
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.put_subscription import put_subscription
from penstock_service.retention.remove_topic import RetentionResult
from penstock_service.retention.retain import retain
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, reset_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from tests.service.push.admin.setting import FUNCTION, wish
from tests.support.group_member import GroupMember
from tests.support.interleaving import interrupted_before
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    head_of,
    new_topic,
    patient_instance,
    send,
)

REFS, RECORDS = 4, 10
END = REFS * RECORDS
BACK = GroupName("back")
OLD_ENOUGH_MS = ACKNOWLEDGED_MS_MIN + APPEND_MS_MAX + 1


def run(instance: Instance) -> RetentionResult:
    return retain(instance, budget_ms=60_000.0)


def old_topic(instance: Instance, clock: SteppedClock, partitions: int = 1, refs: int = REFS) -> str:
    """The topic orders, whose records are old enough to go."""
    topic = new_topic(instance, partitions=partitions, retention="acknowledged", retention_ms=UNLIMITED)
    for partition in range(partitions):
        for _ in range(refs):
            send(instance, topic, *map(str, range(RECORDS)), partition=partition)
    clock.time_ms += OLD_ENOUGH_MS
    return topic


def commit(instance: Instance, offset: int, partition: int = 0, group: str = "early") -> None:
    [error] = commit_offsets(instance, group, [CommitEntry(topic="orders", partition=partition, offset=offset)])
    if error is not None:
        raise error


def start_of(instance: Instance, partition: int = 0) -> int:
    return head_of(instance, "orders", partition).log_start_offset


def test_whole_refs_below_the_lowest_place_go(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    commit(instance, END, group="quick")
    commit(instance, 2 * RECORDS + 5, group="slow")
    assert run(instance).refs_expired == 2
    assert start_of(instance) == 2 * RECORDS
    commit(instance, END, group="slow")
    assert run(instance).refs_expired == 2
    assert start_of(instance) == END


def test_refs_in_pages_go_too(instance: Instance, clock: SteppedClock) -> None:
    refs = 3 * TAIL_ROLL_REFS
    old_topic(instance, clock, refs=refs)
    commit(instance, refs * RECORDS)
    assert run(instance).refs_expired == refs
    clock.time_ms += 60_000
    assert run(instance).pages_deleted


def test_no_alteration_lets_readers_empty_a_compacted_topic(instance: Instance) -> None:
    new_topic(instance, "emptied", retention="acknowledged")
    new_topic(instance, "compacted", cleanup_policy="compact")
    changes = {"emptied": {"cleanup_policy": "compact"}, "compacted": {"retention": "acknowledged"}}
    for name, change in changes.items():
        with pytest.raises(PenstockError, match="for readers to come"):
            alter_topic(instance, name, None, change)


def test_topic_that_is_drained_holds_the_last_hour_at_most(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, retention="acknowledged", retention_ms=UNLIMITED)
    sent: list[int] = []
    for minute in range(0, 6 * 60, 5):
        send(instance, "orders", *map(str, range(RECORDS)))
        sent.append(clock.now_ms())
        commit(instance, len(sent) * RECORDS)
        if minute % 15 == 0:
            run(instance)
            oldest = start_of(instance) // RECORDS
            assert clock.now_ms() - sent[oldest] < 60 * 60_000
        clock.time_ms += 5 * 60_000
    held = head_of(instance, "orders").stored_bytes
    assert held < head_of(instance, "orders").rolled_bytes / 3
    clock.time_ms += 60 * 60_000
    run(instance)
    assert head_of(instance, "orders").stored_bytes == 0


@pytest.mark.parametrize("query_ms", [9_000, 40_000])
def test_a_long_backlog_goes_by_parts_and_leaves_time_for_the_rest(
    instance: Instance, clock: SteppedClock, query_ms: int
) -> None:
    refs = 3 * INDEX_EXPIRY_PAGES * TAIL_ROLL_REFS
    old_topic(instance, clock, refs=refs)
    commit(instance, refs * RECORDS)
    new_topic(instance, "timed", retention_ms=60_000)
    send(instance, "timed", "x")
    clock.time_ms += OLD_ENOUGH_MS

    def slow_pages(pages: Callable[..., object], *arguments: object) -> object:
        clock.time_ms += query_ms
        return pages(*arguments)

    slow = replace(instance, stores=replace(instance.stores, log=Intercepted(instance.stores.log, pages=slow_pages)))
    done = run(slow)
    assert not done.failures
    assert not done.is_finished
    assert (start_of(instance) > 0) == (query_ms < APPEND_MS_MAX)
    assert head_of(instance, "timed").log_start_offset == 1
    for _ in range(3):
        run(instance)
    assert start_of(instance) == refs * RECORDS


def test_young_records_stay_so_that_a_reader_can_be_taken_back(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    send(instance, "orders", "young")
    commit(instance, END + 1)
    clock.time_ms += OLD_ENOUGH_MS - 2
    run(instance)
    assert start_of(instance) == END
    clock.time_ms += 2
    run(instance)
    assert start_of(instance) == END + 1


def test_time_and_size_alone_decide_without_a_reader(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    assert run(instance).refs_expired == 0
    alter_topic(instance, "orders", None, {"retention_ms": 60_000})
    assert run(instance).refs_expired == REFS


def test_time_removes_what_a_reader_has_not_passed(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    commit(instance, 0)
    alter_topic(instance, "orders", None, {"retention_ms": 60_000})
    assert run(instance).refs_expired == REFS


def test_a_topic_that_goes_by_time_costs_no_read_of_readers(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    send(instance, "orders", "x")
    clock.time_ms += OLD_ENOUGH_MS
    counts = Counter[str]()
    run(counted_instance(instance, counts))
    assert not counts["memberships.registered"] + counts["groups.leases"]


def test_readers_are_read_once_for_all_topics_and_not_for_drained_ones(instance: Instance, clock: SteppedClock) -> None:
    for name in ("a", "b", "c"):
        new_topic(instance, name, 5, retention="acknowledged")
    old_topic(instance, clock, partitions=5)
    for partition in range(5):
        commit(instance, END, partition)
    counts = Counter[str]()
    run(counted_instance(instance, counts))
    assert counts["groups.leases"] == 1
    counts.clear()
    run(counted_instance(instance, counts))
    assert not counts["groups.leases"]


def test_a_setting_that_is_new_waits_for_instances_that_do_not_know_it(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    commit(instance, END)
    alter_topic(instance, "orders", None, {"retention": "time"})
    alter_topic(instance, "orders", None, {"retention": "acknowledged"})
    clock.time_ms += READERS_SETTLED_MS - 1
    assert run(instance).refs_expired == 0
    clock.time_ms += 1
    assert run(instance).refs_expired == REFS


def test_a_topic_that_is_deleted_during_the_run_keeps_nothing_of_the_others(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance, "a", retention="acknowledged", retention_ms=UNLIMITED)
    send(instance, "a", "x")
    old_topic(instance, clock)
    commit(instance, END)
    assert not any(commit_offsets(instance, "early", [CommitEntry(topic="a", partition=0, offset=1)]))

    def deleting(registered: Callable[..., object], *arguments: object) -> object:
        if instance.topic_cache.find("a") is not None:
            delete_topic(instance, "a")
        return registered(*arguments)

    memberships = Intercepted(instance.stores.memberships, registered=deleting)
    done = run(replace(instance, stores=replace(instance.stores, memberships=memberships)))
    assert not done.failures
    assert start_of(instance) == END


def test_a_setting_that_changes_during_the_run_counts(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    commit(instance, END)
    for place in count():
        acted: list[bool] = []

        def act(acted: list[bool] = acted) -> None:
            alter_topic(another_instance(instance), "orders", None, {"retention": "time"})
            acted.append(True)

        before = start_of(instance)
        run(interrupted_before(instance, place, act))
        if not acted:
            break
        alter_topic(instance, "orders", None, {"retention": "acknowledged"})
        clock.time_ms += READERS_SETTLED_MS
        if start_of(instance) > before:
            return
    raise AssertionError("the log start never rose")


def test_what_a_mirror_brought_stays_after_its_promotion(instance: Instance, clock: SteppedClock) -> None:
    """Readers of the source may come late."""
    old_topic(instance, clock)
    commit(instance, END)

    def heads(original: Callable[..., dict[object, Head]], keys: object) -> dict[object, Head]:
        return {key: replace(head, promoted_at=Offset(END)) for key, head in original(keys).items()}

    run(another_instance(instance, log=Intercepted(instance.stores.log, heads=heads)))
    assert start_of(instance) == 0


def test_unknown_readers_stop_the_removal_and_count_as_a_failure(instance: Instance, clock: SteppedClock) -> None:
    old_topic(instance, clock)
    commit(instance, END)

    def leases(original: object, group: str) -> None:
        raise UNAVAILABLE

    broken = another_instance(instance, groups=Intercepted(instance.stores.groups, leases=leases))
    assert run(broken) == RetentionResult(partitions=1, failures=1)
    assert start_of(instance) == 0


def _join(instance: Instance) -> int:
    GroupMember(instance, "m1", group="late").settle()
    return 0


def _commit_first(instance: Instance) -> int:
    commit(instance, RECORDS, group="late")
    return RECORDS


def _commit_back(instance: Instance) -> int:
    [lease] = instance.stores.groups.leases(BACK)
    seen = SeenCommit(offset=Offset(END), committed_at_ms=lease.committed_at_ms)
    entry = CommitEntry(topic="orders", partition=0, offset=RECORDS, lease_epoch=lease.epoch, back_from=seen)
    assert commit_offsets(instance, BACK, [entry], "m1") == (None,)
    return RECORDS


def _reset(instance: Instance) -> int:
    [(_, done)] = reset_offsets(instance, "early", "orders", ResetTo(offsets={0: RECORDS}))
    if isinstance(done, PenstockError):  # the log began above that: the answer tells where
        return int(str(done.facts["log_start_offset"]))
    [lease] = instance.stores.groups.leases(GroupName("early"))
    assert lease.offset == done.new_offset
    assert done.new_offset >= start_of(instance), "a reset below answers where the log begins"
    return done.new_offset


def _share(instance: Instance) -> int:
    put_share_group(instance, "workers", ["orders"], {})
    return 0


def _reset_share(instance: Instance) -> int:
    [(_, done)] = reset_share_group(instance, "passed", "orders", ShareResetTo(offset=RECORDS))
    return int(str(done.facts["log_start_offset"])) if isinstance(done, PenstockError) else RECORDS


def _subscribe(instance: Instance) -> int:
    put_subscription(instance, "packing", wish(["orders"], {"lambda": FUNCTION}, start="earliest"))
    return 0


def _subscribe_parallel(instance: Instance) -> int:
    put_subscription(instance, "packing", wish(["orders"], {"lambda": FUNCTION}, start="earliest", mode="parallel"))
    return 0


def _name_as_dead_letter_topic(instance: Instance) -> int:
    put_share_group(instance, "workers", ["bills"], {"dead_letter_topic": "orders"})
    return 0


READERS = [
    _join,
    _commit_first,
    _commit_back,
    _reset,
    _share,
    _reset_share,
    _subscribe,
    _subscribe_parallel,
    _name_as_dead_letter_topic,
]


def _prepared() -> Instance:
    """A stage with readers that have passed all of orders: a group, one with a member, and a share group."""
    clock = SteppedClock()
    instance = patient_instance(clock)
    new_topic(instance, "bills")
    old_topic(instance, clock)
    commit(instance, END)
    member = GroupMember(instance, "m1", group=BACK)
    member.settle()
    member.commit(0, END)
    put_share_group(instance, "passed", ["orders"], {})
    reset_share_group(instance, "passed", "orders", ShareResetTo(offset=END))
    return instance


@pytest.mark.parametrize("appear", READERS, ids=lambda each: each.__name__)
def test_a_reader_that_comes_before_any_call_of_a_run_keeps_what_it_was_promised(
    appear: Callable[[Instance], int],
) -> None:
    """Its place counts from its answer on. Where the log began above it by then, the reader hears of that."""
    rose = 0
    for place in count():
        instance = _prepared()
        promised: list[int] = []

        def act(instance: Instance = instance, promised: list[int] = promised) -> None:
            promised.append(max(appear(another_instance(instance)), start_of(instance)))

        run(interrupted_before(instance, place, act))
        if not promised:
            break
        run(another_instance(instance))
        assert start_of(instance) <= promised[0], f"before call {place} of the run"
        rose += promised[0] == END
    assert rose, "the last calls come after the log start has risen"


@pytest.mark.parametrize("appear", READERS, ids=lambda each: each.__name__)
def test_a_run_between_any_two_calls_of_a_new_reader_takes_nothing_after_the_answer(
    appear: Callable[[Instance], int],
) -> None:
    for place in count():
        instance = _prepared()
        ran: list[bool] = []

        def act(instance: Instance = instance, ran: list[bool] = ran) -> None:
            run(another_instance(instance))
            ran.append(True)

        promised = max(appear(interrupted_before(instance, place, act)), start_of(instance))
        run(another_instance(instance))
        assert start_of(instance) <= promised, f"before call {place} of the reader"
        if not ran:
            break


def test_a_run_that_read_before_a_reader_came_raises_nothing_after_its_answer(
    instance: Instance, clock: SteppedClock
) -> None:
    """The very race: heads and places were read, then a reader came and was answered, then the update is sent."""
    old_topic(instance, clock)
    commit(instance, END)

    def raise_passed(original: Callable[..., object], *arguments: object) -> object:
        _join(another_instance(instance))
        return original(*arguments)

    other = another_instance(instance, log=Intercepted(instance.stores.log, raise_passed=raise_passed))
    assert run(other).refs_expired == 0
    assert start_of(instance) == 0


def test_a_group_that_had_members_holds_partitions_that_it_has_no_lease_on(
    instance: Instance, clock: SteppedClock
) -> None:
    """Partitions that came while its members were away, too."""
    new_topic(instance, retention="acknowledged")
    member = GroupMember(instance, "m1", group="away")
    member.settle()
    member.leave()
    alter_topic(instance, "orders", 2, {})
    send(instance, "orders", *map(str, range(RECORDS)), partition=1)
    clock.time_ms += OLD_ENOUGH_MS
    commit(instance, RECORDS, partition=1)
    run(instance)
    assert start_of(instance, 1) == 0
    instance.stores.groups.delete_lease(GroupName("away"), instance.stores.groups.leases(GroupName("away"))[0])
    run(instance)
    assert start_of(instance, 1) == RECORDS


def test_a_group_that_never_had_members_holds_only_partitions_that_it_commits_to(
    instance: Instance, clock: SteppedClock
) -> None:
    old_topic(instance, clock, partitions=2)
    commit(instance, 0, partition=0, group="one")
    commit(instance, END, partition=1, group="other")
    run(instance)
    assert (start_of(instance, 0), start_of(instance, 1)) == (0, END)
