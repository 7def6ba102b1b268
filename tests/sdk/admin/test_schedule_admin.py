"""Schedules through Admin and AsyncAdmin, against the service in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import InvalidError, NotFoundError, RecordTooLargeError, UnknownTopicError
from penstock.testing import MemoryPenstock

Call = Callable[..., Any]
EACH = ("each", "* * * * *", "orders")
MINUTE = 60_000


@pytest.fixture(params=["Admin", "AsyncAdmin"])
def call(request: pytest.FixtureRequest, service: MemoryPenstock) -> Call:
    """Calls a method of the admin client by its name."""
    service.create_topic("orders", partitions=2)
    if request.param == "Admin":
        return lambda method, *args, **options: getattr(service.admin(), method)(*args, **options)

    def call_async(method: str, *args: Any, **options: Any) -> Any:
        async def run() -> Any:
            async with service.async_admin() as admin:
                return await getattr(admin, method)(*args, **options)

        return asyncio.run(run())

    return call_async


def test_schedule_is_made_altered_listed_and_deleted(call: Call) -> None:
    made = call("put_schedule", *EACH, b"go", time_zone="Europe/Berlin")
    assert (made.name, made.cron, made.topic, made.enabled) == ("each", "* * * * *", "orders", True)
    assert made.content == (None, b"go", ())
    altered = call("put_schedule", "each", enabled=False)
    assert (altered.next_ms, altered.time_zone, altered.schedule_id) == (None, "Europe/Berlin", made.schedule_id)
    assert call("list_schedules") == [altered]
    call("delete_schedule", "each")
    with pytest.raises(NotFoundError):
        call("describe_schedule", "each")


@pytest.mark.parametrize(
    ("record", "content"),
    [
        ("text", (None, b"text", ())),
        (b"\xff", (None, b"\xff", ())),
        ({"key": "k", "value": None}, (b"k", None, ())),
        ({"value": "v", "headers": [["a", "b"], ["c", None]]}, (None, b"v", (("a", b"b"), ("c", None)))),
    ],
)
def test_record_is_its_value_or_has_parts(call: Call, record: Any, content: Any) -> None:
    assert call("put_schedule", *EACH, record).content == content


def test_record_comes_each_minute(call: Call, service: MemoryPenstock) -> None:
    call("put_schedule", *EACH, {"key": "k", "value": "go"})
    for _ in range(3):
        service.advance(MINUTE)
    records = service.records("orders")
    assert [(record.key, record.value) for record in records] == [(b"k", b"go")] * 3
    due = [int(dict(record.headers)["penstock.schedule.due-ms"] or b"") for record in records]
    assert due == [due[0], due[0] + MINUTE, due[0] + 2 * MINUTE]
    found = call("describe_schedule", "each")
    assert (found.runs, found.last_due_ms, found.last_error) == (3, due[-1], None)


def test_topic_that_is_gone_is_told(call: Call, service: MemoryPenstock) -> None:
    call("put_schedule", *EACH, "go")
    call("delete_topic", "orders")
    service.advance(MINUTE)
    assert "orders" in call("describe_schedule", "each").last_error


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a b", *EACH[1:], "go"), InvalidError),
        (("each", "* * *", "orders", "go"), InvalidError),
        (("each", 5, "orders", "go"), InvalidError),
        (("each", "* * * * *", "missing", "go"), UnknownTopicError),
        (("each", "* * * * *", "orders", {"valeu": "go"}), InvalidError),
        (("each", "* * * * *", "orders", 5), InvalidError),
        (("each", "* * * * *", "orders", "v" * 9_000), RecordTooLargeError),
        (("each",), InvalidError),
    ],
)
def test_bad_input_is_refused(call: Call, arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call("put_schedule", *arguments)
