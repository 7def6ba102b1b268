"""Schedules that tests of several layers take."""

from penstock_core.ids import ScheduleId, ScheduleName, TopicId, TopicName
from penstock_core.schedules.schedule import RunNote, Schedule, ScheduledRecord, Times

NIGHTLY = Times(cron="30 2 * * *", time_zone="Europe/Berlin")
PLAIN = Schedule(
    name=ScheduleName("nightly"),
    schedule_id=ScheduleId("ab" * 10),
    created_at_ms=7,
    times=NIGHTLY,
    topic=TopicName("orders"),
    topic_id=TopicId("00ff"),
    record=ScheduledRecord(key=None, value=b"go"),
    next_ms=5_400_000,
)
FULL = Schedule(
    name=ScheduleName("nightly"),
    schedule_id=ScheduleId("ab" * 10),
    version=3,
    created_at_ms=7,
    times=NIGHTLY,
    topic=TopicName("orders"),
    topic_id=TopicId("00ff"),
    record=ScheduledRecord(key=b"\xff", value=None, headers=(("a", b"1"), ("a", None))),
    next_ms=5_400_000,
    last=RunNote(due_ms=1, run_ms=2, count=4, error="no such topic", error_ms=3),
)
