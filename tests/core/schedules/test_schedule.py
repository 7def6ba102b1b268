from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.limits import SCHEDULE_RECORD_BYTES_MAX
from penstock_core.log.topic import Topic, TopicConfig
from penstock_core.schedules.schedule import (
    RunNote,
    ScheduledRecord,
    check_record,
    due_now,
    failed,
    new_schedule_id,
    postponed,
    runs_of_second,
    starts_runs,
    succeeded,
)
from tests.core.schedules.schedule_samples import FULL, PLAIN

DAY = 86_400_000


def topic(**config: Any) -> Topic:
    return Topic(
        name=TopicName("orders"), topic_id=TopicId("00ff"), partitions=1, created_at_ms=0, config=TopicConfig(**config)
    )


def test_run_moves_on_once_behind_all_that_was_missed() -> None:
    assert PLAIN.next_ms is not None
    now_ms = PLAIN.next_ms + 3 * DAY + 1
    after = succeeded(FULL, now_ms).after
    assert after.next_ms == PLAIN.next_ms + 4 * DAY
    assert after.last == RunNote(due_ms=PLAIN.next_ms, run_ms=now_ms, count=5)
    assert (after.version, after.schedule_id, after.record) == (FULL.version, FULL.schedule_id, FULL.record)


def test_run_on_a_slow_clock_moves_on_behind_its_own_due_time() -> None:
    assert PLAIN.next_ms is not None
    assert succeeded(PLAIN, PLAIN.next_ms - 60_000).after.next_ms == PLAIN.next_ms + DAY


def test_run_that_fails_keeps_what_was_appended_and_tells_why() -> None:
    assert FULL.next_ms is not None
    given_up, again = failed(FULL, FULL.next_ms, "gone").after, postponed(FULL, FULL.next_ms, "slow").after
    assert (given_up.next_ms, again.next_ms) == (FULL.next_ms + DAY, FULL.next_ms)
    assert given_up.last == RunNote(due_ms=1, run_ms=2, count=4, error="gone", error_ms=FULL.next_ms)
    assert again.last.error == "slow"


def test_due_are_those_whose_time_has_come_the_oldest_first() -> None:
    late, soon, off = (replace(PLAIN, next_ms=each) for each in (5, 10, None))
    assert due_now([soon, off, late], 9) == [late]
    assert due_now([soon, off, late], 10) == [late, soon]
    assert not off.is_enabled


def test_record_has_a_size_that_is_bounded() -> None:
    largest = ScheduledRecord(key=b"k", value=b"v" * (SCHEDULE_RECORD_BYTES_MAX - 3), headers=(("é", None),))
    assert largest.size_bytes == SCHEDULE_RECORD_BYTES_MAX
    check_record(largest, topic())
    with pytest.raises(PenstockError) as caught:
        check_record(replace(largest, key=b"kk"), topic())
    assert caught.value.code is ErrorCode.RECORD_TOO_LARGE
    assert str(SCHEDULE_RECORD_BYTES_MAX) in caught.value.message
    with pytest.raises(PenstockError, match="at most 1024"):
        check_record(largest, topic(max_batch_bytes=1_024))


def test_record_for_a_compacted_topic_needs_a_key() -> None:
    with pytest.raises(PenstockError) as caught:
        check_record(PLAIN.record, topic(cleanup_policy="compact"))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    check_record(FULL.record, topic(cleanup_policy="compact"))


def test_message_names_the_second_that_ends_at_the_due_time_or_later() -> None:
    assert runs_of_second(60_000).end_ms == 60_000
    assert runs_of_second(60_001).end_ms == 61_000
    assert starts_runs(runs_of_second(60_000))


def test_id_takes_ten_random_bytes() -> None:
    assert new_schedule_id(b"\xab" * 10) == "ab" * 10
    with pytest.raises(ValueError, match="random bytes"):
        new_schedule_id(b"")
