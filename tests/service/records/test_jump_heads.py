"""After a restore no offset is given twice, and each reader is told what it missed or passes (finding U15)."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.limits import JUMP_OFFSETS_MAX, LOST_HEAD_JUMP_OFFSETS, TAIL_ROLL_REFS
from penstock_core.log.retention import written_ms
from penstock_core.records.record_batch import walk
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.describe_group import describe_group
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.metrics.measure import consumer_lags
from penstock_service.topics.alter_topic import truncate
from penstock_service.topics.list_offsets import OffsetSpec, list_offsets
from tests.service.compaction.written_topic import HOUR_MS, run
from tests.support.refusals import refused
from tests.support.restoring import jump, made
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    head_of,
    key_of,
    new_topic,
    refs_of,
    send,
    values_of,
)


@pytest.fixture
def restored(instance: Instance) -> Instance:
    """orders-0 as the restore left it: 0 to 9, where the harmed log ended at 20."""
    new_topic(instance)
    send(instance, "orders", *map(str, range(10)))
    return instance


def test_restore_notes_a_raise_so_that_the_items_without_a_copy_are_looked_at(restored: Instance) -> None:
    jump(restored, 20)
    assert restored.topic_cache.read_through("orders").retention_raise is not None


def test_partitions_go_on_behind_every_offset_that_was_given(restored: Instance) -> None:
    assert jump(restored, 20) == [made(10, 1_020)]
    assert send(restored, "orders", "new").base_offset == 1_020


def test_repeat_changes_nothing_and_another_restore_jumps_again(restored: Instance) -> None:
    jump(restored, 20)
    head = head_of(restored, "orders")
    assert jump(restored, 20) == [made(10, 1_020, was_done=True)]
    assert head_of(restored, "orders") == head
    assert jump(restored, 1_500, restore_id="restore-2") == [made(1_020, 2_500)]
    assert [(each.start, each.end) for each in head_of(restored, "orders").jumps] == [(10, 1_020), (1_020, 2_500)]


def test_repeat_jumps_again_once_the_harmed_log_has_grown(restored: Instance) -> None:
    jump(restored, 20)
    assert jump(restored, 21) == [made(1_020, 2_020)], "its margin is whole again"
    assert jump(restored, 5_000) == [made(2_020, 6_000)]
    assert jump(restored, 5_000) == [made(2_020, 6_000, was_done=True)]
    error = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(restored, "orders", 15))
    assert error.facts["to"] == 6_000


def test_dry_run_tells_the_jumps_and_changes_nothing(restored: Instance) -> None:
    before = head_of(restored, "orders"), restored.topic_cache.read_through("orders")
    assert jump(restored, 20, is_dry_run=True) == [made(10, 1_020)]
    assert (head_of(restored, "orders"), restored.topic_cache.read_through("orders")) == before


def test_partition_without_a_harmed_head_jumps_further(instance: Instance) -> None:
    new_topic(instance, partitions=2)
    end = LOST_HEAD_JUMP_OFFSETS
    assert jump(instance, 7) == [made(0, 1_007), made(0, end, 1, is_lost=True)]


def test_more_than_one_batch_covers_is_jumped_in_pieces(restored: Instance) -> None:
    end = 3 * JUMP_OFFSETS_MAX
    assert jump(restored, end) == [made(10, end + 1_000)]
    assert [each.ref.offset_span for each in refs_of(restored, key_of(restored, "orders"))[1:]] == [
        JUMP_OFFSETS_MAX,
        JUMP_OFFSETS_MAX,
        JUMP_OFFSETS_MAX,
        end + 1_000 - 10 - 3 * JUMP_OFFSETS_MAX,
    ]
    offset, steps = 10, 0
    while offset < end:
        offset, steps = ask(restored, "orders", offset).next_offset, steps + 1
    assert (offset, steps) == (end + 1_000, 1)
    error = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(restored, "orders", 11))
    assert error.facts["to"] == end + 1_000


def test_jump_is_refused_where_a_writer_has_appended_meanwhile(restored: Instance) -> None:
    def late(original: Callable[..., Any], *arguments: Any) -> Any:
        send(restored, "orders", "late")
        return original(*arguments)

    slow = another_instance(restored, log=Intercepted(restored.stores.log, jump=late))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: jump(slow, 20))
    assert jump(restored, 20) == [made(11, 1_020)], "the next call plans it anew"


def test_jump_after_a_sleep_is_refused(restored: Instance, clock: SteppedClock) -> None:
    def asleep(original: Callable[..., Any], *arguments: Any) -> Any:
        found = original(*arguments)
        clock.sleep_ms(HOUR_MS)
        return found

    slow = another_instance(restored, log=Intercepted(restored.stores.log, heads=asleep))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: jump(slow, 20))
    assert not head_of(restored, "orders").jumps


@pytest.mark.parametrize("offset", [11, 15, 1_019])
def test_fetch_within_the_jump_is_told_where_to_go_on(restored: Instance, offset: int) -> None:
    jump(restored, 20)
    send(restored, "orders", "new")
    error = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(restored, "orders", offset))
    assert error.facts == {"log_start_offset": 0, "high_watermark": 1_021, "to": 1_020}


def test_reader_at_the_jump_passes_it_with_one_batch(restored: Instance) -> None:
    jump(restored, 20)
    fetched = ask(restored, "orders", 10)
    assert [(header.record_count, header.base_offset) for _, header in walk(fetched.data)] == [(0, 10)]
    assert (fetched.next_offset, fetched.high_watermark) == (1_020, 1_020)
    send(restored, "orders", "new")
    fetched = ask(restored, "orders", 8)
    assert values_of(fetched, 8) == [(8, "8"), (9, "9"), (1_020, "new")]


def test_log_start_within_the_jump_is_readable(restored: Instance) -> None:
    jump(restored, 20)
    send(restored, "orders", "new")
    truncate(restored, "orders", {0: 500})
    assert values_of(ask(restored, "orders", 500), 500) == [(1_020, "new")]


def test_ends_and_times_are_found_across_the_jump(restored: Instance) -> None:
    jump(restored, 20)
    send(restored, "orders", "new")
    ends = {spec: list_offsets(restored, "orders", spec, 0).all_ok()[0].offset for spec in OffsetSpec}
    assert ends == {OffsetSpec.EARLIEST: 0, OffsetSpec.LATEST: 1_021}
    assert list_offsets(restored, "orders", 1_000, 0).all_ok()[0].offset == 0
    truncate(restored, "orders", {0: 10})
    assert list_offsets(restored, "orders", 1_000, 0).all_ok()[0].offset == 1_020


def _commit(instance: Instance, offset: int) -> PenstockError | None:
    [result] = commit_offsets(instance, "readers", [CommitEntry(topic="orders", partition=0, offset=offset)])
    return result


def test_commit_within_the_jump_is_refused_and_both_ends_count(restored: Instance) -> None:
    jump(restored, 20)
    assert _commit(restored, 10) is None
    refusal = _commit(restored, 15)
    assert refusal is not None
    assert (refusal.code, refusal.facts["to"]) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1_020)
    assert _commit(restored, 1_020) is None


def test_lag_and_age_leave_the_jump_out(restored: Instance, clock: SteppedClock) -> None:
    _commit(restored, 10)
    jump(restored, 20)
    clock.time_ms += HOUR_MS

    def told() -> tuple[int | None, int | None, int, int]:
        [partition] = describe_group(restored, "readers").partitions
        [lag] = consumer_lags(restored, "", 1e9).lags
        return partition.lag, partition.oldest_age_ms, lag.records, lag.oldest_age_ms

    assert told() == (0, None, 0, 0)
    send(restored, "orders", "new")
    assert told() == (1, 0, 1, 0)
    _commit_back(restored, 7)
    assert told()[0] == 4


def _commit_back(instance: Instance, offset: int) -> None:
    [(_, result)] = reset_offsets(instance, "readers", "orders", ResetTo(offsets={Partition(0): offset}))
    assert not isinstance(result, PenstockError), result


@pytest.mark.parametrize(("shift", "offset"), [(5, 1_020), (1_030, 1_021), (-1, 9)])
def test_reset_by_a_shift_lands_at_an_end_of_the_jump(restored: Instance, shift: int, offset: int) -> None:
    jump(restored, 20)
    send(restored, "orders", "new")
    _commit(restored, 10)
    [(_, result)] = reset_offsets(restored, "readers", "orders", ResetTo(shift_by=shift))
    assert not isinstance(result, PenstockError)
    assert result.new_offset == offset


def test_reset_into_the_jump_is_refused(restored: Instance) -> None:
    jump(restored, 20)
    _commit(restored, 10)
    [(_, result)] = reset_offsets(restored, "readers", "orders", ResetTo(offsets={Partition(0): 15}))
    assert isinstance(result, PenstockError)
    assert (result.code, result.facts["to"]) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1_020)


@pytest.mark.parametrize("config", [{}, {"cleanup_policy": "compact"}])
def test_compaction_keeps_the_jump(instance: Instance, clock: SteppedClock, config: dict[str, Any]) -> None:
    new_topic(instance, **config)
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, "orders", f"{number}")
    clock.time_ms += HOUR_MS
    jump(instance, 100)
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, "orders", f"new {number}")
    clock.time_ms += 2 * HOUR_MS
    assert run(instance, "orders").runs > 0
    assert values_of(ask(instance, "orders", 32))[0] == (1_100, "new 0")
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(instance, "orders", 40))
    assert [values_of(ask(instance, "orders", 31))[place] for place in (0, 1)] == [(31, "31"), (1_100, "new 0")]


def test_jump_expires_like_records_of_its_time(restored: Instance, clock: SteppedClock) -> None:
    clock.time_ms += HOUR_MS
    jump(restored, 20)
    [_, located] = refs_of(restored, key_of(restored, "orders"))
    assert written_ms(located.ref) == clock.now_ms()
