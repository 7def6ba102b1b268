from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId
from penstock_core.limits import SCHEDULE_RECORD_BYTES_MAX
from penstock_core.schedules.schedule import Schedule, ScheduledRecord, succeeded
from penstock_core.storage.item import item_bytes
from penstock_core.storage.schedule_item import (
    parse_schedule,
    schedule_delete,
    schedule_item,
    schedule_put,
    schedule_run,
    schedule_update,
)
from tests.core.schedules.schedule_samples import FULL, PLAIN
from tests.support.tables import check_update

EMPTY = replace(PLAIN, record=ScheduledRecord(key=b"", value=b""), next_ms=None)


@pytest.mark.parametrize("schedule", [PLAIN, FULL, EMPTY])
def test_schedule_is_read_back(schedule: Schedule) -> None:
    assert parse_schedule(schedule_item(schedule)) == schedule


def test_schedule_item_is_what_is_stored_today() -> None:
    assert schedule_item(FULL) == {
        "pk": {"S": "#schedules"},
        "sk": {"S": "nightly"},
        "schedule_id": {"S": "ab" * 10},
        "version": {"N": "3"},
        "created_at_ms": {"N": "7"},
        "cron": {"S": "30 2 * * *"},
        "time_zone": {"S": "Europe/Berlin"},
        "topic": {"S": "orders"},
        "topic_id": {"S": "00ff"},
        "record": {
            "M": {
                "headers": {"L": [{"L": [{"S": "a"}, {"B": b"1"}]}, {"L": [{"S": "a"}, {"NULL": True}]}]},
                "key": {"B": b"\xff"},
            }
        },
        "next_ms": {"N": "5400000"},
        "due_ms": {"N": "1"},
        "run_ms": {"N": "2"},
        "runs": {"N": "4"},
        "failure": {"S": "no such topic"},
        "failed_ms": {"N": "3"},
    }


def test_unknown_format_is_refused() -> None:
    with pytest.raises(PenstockError) as caught:
        parse_schedule({**schedule_item(PLAIN), "format_version": {"N": "2"}})
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


def test_largest_schedule_takes_little_more_than_its_record() -> None:
    largest = replace(FULL, record=ScheduledRecord(key=None, value=b"v" * SCHEDULE_RECORD_BYTES_MAX))
    assert item_bytes(schedule_item(largest)) < SCHEDULE_RECORD_BYTES_MAX + 1_024


def test_change_of_the_record_leaves_runs_alone() -> None:
    changed = replace(FULL, version=4, topic_id=TopicId("11ff"), record=PLAIN.record)
    update = schedule_update(FULL, changed)
    check_update(update)
    assert not {"next_ms", "runs", "due_ms", "failure"} & {*update.names.values()}


def test_change_of_the_times_draws_the_next_run_or_removes_it() -> None:
    for next_ms, verb in ((9, "SET"), (None, "REMOVE")):
        update = schedule_update(FULL, replace(FULL, version=4, next_ms=next_ms))
        check_update(update)
        assert "#new_next_ms" in update.update.partition("REMOVE")[0 if verb == "SET" else 2]


def test_run_writes_its_note_alone_on_condition_of_version_and_due_time() -> None:
    assert PLAIN.next_ms is not None
    update = schedule_run(succeeded(FULL, PLAIN.next_ms))
    check_update(update)
    assert {*update.names.values()} == {"next_ms", "runs", "due_ms", "run_ms", "failure", "failed_ms"}
    assert update.condition == "schedule_id = :seen_id AND version = :seen_version AND next_ms = :seen_next"
    assert update.values[":seen_next"] == {"N": "5400000"}


def test_put_and_delete_name_the_schedule() -> None:
    assert schedule_put(PLAIN).condition == "attribute_not_exists(pk)"
    assert schedule_delete(PLAIN)["ExpressionAttributeValues"] == {":seen_id": {"S": "ab" * 10}}
