"""Schedules that a template declares."""

from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_service.instance.instance import Instance
from penstock_service.schedules.put_schedule import ScheduleWish, find_schedule, put_schedule
from tests.handlers.provision.template import Template, config

WISH = {"Name": "report", "Topic": "orders", "Cron": "0 9 * * *", "TimeZone": "UTC", "Record": config(value="go")}


def test_schedule_is_made_altered_and_deleted(schedule: Template, to: Instance) -> None:
    made = schedule.create(**WISH, OnDelete="destroy")
    found = find_schedule(to, "report")
    assert made["PhysicalResourceId"] == f"report/{found.schedule_id}"
    assert (found.times.cron, found.record.value, found.is_enabled) == ("0 9 * * *", b"go", True)
    put_schedule(to, "report", ScheduleWish(is_enabled=False))
    altered = schedule.update(**{**WISH, "Cron": "0 8 * * *"}, OnDelete="destroy")
    found = find_schedule(to, "report")
    assert altered["PhysicalResourceId"] == made["PhysicalResourceId"]
    assert (found.times.cron, found.is_enabled) == ("0 8 * * *", True)
    assert schedule.delete()["Status"] == "SUCCESS"
    with pytest.raises(PenstockError, match="report"):
        find_schedule(to, "report")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"Cron": "9 o'clock"}, "has 2 fields"),
        ({"TimeZone": "Berlin"}, "Europe/Berlin"),
        ({"Topic": "absent"}, "topic 'absent' does not exist"),
        ({"Record": "go"}, "Record"),
        ({"Record": config(valeu="go")}, "Record"),
        ({"Cron": 5}, "Cron"),
    ],
)
def test_schedule_with_a_mistake_fails_with_the_reason(
    schedule: Template, properties: dict[str, Any], told: str
) -> None:
    answer = schedule.create(**{**WISH, **properties})
    assert answer["Status"] == "FAILED"
    assert told in answer["Reason"]
