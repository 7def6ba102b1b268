"""The contract of ScheduleStore, held by the adapters in memory, with a database below, and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Partition, PartitionKey, ScheduleId, ScheduleName, TopicId
from penstock_core.schedules.schedule import Schedule, failed, postponed, succeeded
from penstock_core.transaction import Move
from tests.contract.conftest import Ports
from tests.core.schedules.schedule_samples import FULL, PLAIN
from tests.support.refs import ref_at
from tests.support.refusals import refused

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
OTHER_ID = ScheduleId("cd" * 10)
DUE = PLAIN.next_ms or 0


def stored(ports: Ports) -> Schedule:
    found = ports.schedules.get(PLAIN.name)
    assert found is not None
    return found


def move(ports: Ports, *schedules: Schedule) -> bool:
    runs = [succeeded(each, DUE) for each in schedules]
    return ports.transactions.move(Move(runs=runs, refs={KEY: [ref_at(0)]})).is_applied


def test_schedule_is_stored_once_and_changed_from_the_version_that_was_seen(ports: Ports) -> None:
    assert ports.schedules.get(PLAIN.name) is None
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.schedules.change(PLAIN, FULL))
    ports.schedules.change(None, PLAIN)
    assert stored(ports) == PLAIN
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.schedules.change(None, replace(PLAIN, schedule_id=OTHER_ID)))
    changed = replace(FULL, version=2, last=PLAIN.last)
    ports.schedules.change(PLAIN, changed)
    assert stored(ports) == changed
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.schedules.change(PLAIN, changed))
    refused(
        ErrorCode.CONCURRENT_UPDATE, lambda: ports.schedules.change(replace(changed, schedule_id=OTHER_ID), changed)
    )


def test_disabled_schedule_has_no_due_time(ports: Ports) -> None:
    ports.schedules.change(None, PLAIN)
    disabled = replace(PLAIN, version=2, next_ms=None)
    ports.schedules.change(PLAIN, disabled)
    assert stored(ports) == disabled
    assert ports.schedules.due(10**13) == []


def test_list_has_pages_and_due_ends_before_its_bound(ports: Ports) -> None:
    names = [ScheduleName(f"s{number}") for number in range(5)]
    for number, name in enumerate(names):
        ports.schedules.change(None, replace(PLAIN, name=name, next_ms=DUE + number))
    assert [each.name for each in ports.schedules.list("", 2)] == names[:2]
    assert [each.name for each in ports.schedules.list("s1", 9)] == names[2:]
    assert ports.schedules.list("s4", 9) == []
    assert [each.name for each in ports.schedules.due(DUE + 3)] == names[:3]


def test_run_appends_and_moves_on_both_or_neither(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.schedules.change(None, PLAIN)
    assert move(ports, PLAIN)
    after = succeeded(PLAIN, DUE).after
    assert stored(ports) == after
    assert ports.log.heads([KEY])[KEY].next_offset == 1
    assert not move(ports, PLAIN)
    assert stored(ports) == after
    assert ports.log.heads([KEY])[KEY].next_offset == 1


@pytest.mark.parametrize(
    "seen", [replace(PLAIN, version=2), replace(PLAIN, schedule_id=OTHER_ID), replace(PLAIN, next_ms=DUE - 1)]
)
def test_run_of_another_schedule_version_or_due_time_is_refused(ports: Ports, seen: Schedule) -> None:
    ports.log.create_head(KEY)
    ports.schedules.change(None, PLAIN)
    assert not move(ports, seen)
    assert not ports.schedules.note(failed(seen, DUE, "gone"))
    assert stored(ports) == PLAIN
    assert ports.log.heads([KEY])[KEY].next_offset == 0


def test_one_refused_run_refuses_its_neighbours(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.schedules.change(None, PLAIN)
    assert not move(ports, PLAIN, replace(PLAIN, name=ScheduleName("gone")))
    assert stored(ports) == PLAIN


def test_run_without_a_head_notes_nothing(ports: Ports) -> None:
    ports.schedules.change(None, PLAIN)
    refused(ErrorCode.UNKNOWN_PARTITION, lambda: move(ports, PLAIN))
    assert stored(ports) == PLAIN


def test_note_keeps_the_due_time_or_moves_on_and_a_success_removes_the_error(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.schedules.change(None, PLAIN)
    again = postponed(PLAIN, DUE, "slow")
    assert ports.schedules.note(again)
    assert stored(ports) == again.after
    assert move(ports, again.after)
    assert stored(ports).last.error == ""
    gone = failed(stored(ports), DUE, "gone")
    assert ports.schedules.note(gone)
    assert stored(ports) == gone.after


def test_change_and_run_do_not_undo_each_other(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.schedules.change(None, PLAIN)
    assert move(ports, PLAIN)
    changed = replace(PLAIN, version=2, record=FULL.record)
    ports.schedules.change(PLAIN, changed)  # it had read the schedule before the run
    after = stored(ports)
    assert (after.record, after.version, after.next_ms) == (FULL.record, 2, succeeded(PLAIN, DUE).after.next_ms)
    assert after.last.count == 1


def test_delete_takes_the_schedule_that_was_seen(ports: Ports) -> None:
    ports.schedules.change(None, PLAIN)
    assert not ports.schedules.delete(replace(PLAIN, schedule_id=OTHER_ID))
    assert ports.schedules.delete(replace(PLAIN, version=9))
    assert not ports.schedules.delete(PLAIN)
    assert ports.schedules.get(PLAIN.name) is None
