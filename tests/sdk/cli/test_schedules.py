"""`penstock schedules`, against the service in memory."""

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json

CREATE = ("schedules", "create", "report", "orders", "--cron", "0 9 * * MON-FRI")


@pytest.fixture(autouse=True)
def topics(service: MemoryPenstock) -> None:
    service.create_topic("orders")


def test_schedule_is_made_shown_altered_switched_and_deleted(service: MemoryPenstock) -> None:
    transport = service.transport
    made = run_json(
        transport, *CREATE, "--time-zone", "Europe/Berlin", "--value", "go", "--key", "k", "--header", "a=b"
    )
    assert made["record"] == {"key": "k", "value": "go", "headers": [["a", "b"]]}
    assert [each["name"] for each in run_json(transport, "schedules", "list")] == ["report"]
    assert "Europe/Berlin" in run(transport, "schedules", "list").stdout
    service.advance(4 * 86_400_000)
    shown = run(transport, "schedules", "describe", "report").stdout
    assert "records so far" in shown
    assert run_json(transport, "schedules", "describe", "report")["runs"] == 1
    altered = run_json(transport, "schedules", "alter", "report", "--cron", "0 8 * * *", "--value", "again")
    assert (altered["cron"], altered["record"]["key"]) == ("0 8 * * *", None)
    assert run_json(transport, "schedules", "disable", "report")["next_ms"] is None
    assert "disabled" in run(transport, "schedules", "list").stdout
    assert "none: it is disabled" in run(transport, "schedules", "describe", "report").stdout
    assert run_json(transport, "schedules", "enable", "report")["enabled"]
    assert run_json(transport, "schedules", "delete", "report", "--yes") == {"deleted": "report"}
    for command in (("describe",), ("enable",), ("disable",), ("alter", "--cron", "* * * * *")):
        assert run(transport, "schedules", command[0], "report", *command[1:]).exit_code == 1
    assert service.admin().list_schedules() == []


def test_if_not_exists_leaves_what_is_there(service: MemoryPenstock) -> None:
    run_json(service.transport, *CREATE, "--if-not-exists")
    kept = run_json(service.transport, *CREATE, "--value", "other", "--if-not-exists")
    assert kept["record"]["value"] == ""
    assert "nothing was changed" in run(service.transport, *CREATE, "--if-not-exists").stdout
    assert run_json(service.transport, *CREATE, "--value", "other", "--disabled")["enabled"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("create", "report", "orders"), 2, "--cron"),
        (("create", "report", "orders", "--cron", "x"), 1, "has 1 fields"),
        (("create", "report", "orders", "--cron", "* * * * *", "--header", "a"), 2, "NAME=VALUE"),
        (("alter", "report"), 2, "nothing to change"),
        (("alter", "report", "--key", "k"), 2, "give --value, too"),
    ],
)
def test_wrong_usage_is_told(service: MemoryPenstock, arguments: tuple[str, ...], code: int, told: str) -> None:
    result = run(service.transport, "schedules", *arguments)
    assert (result.exit_code, told in result.output) == (code, True), result.output


def test_likely_name_is_told(service: MemoryPenstock) -> None:
    run_json(service.transport, *CREATE)
    assert "did you mean 'report'?" in run(service.transport, "schedules", "describe", "raport").output
