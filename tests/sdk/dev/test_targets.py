"""Queues and buses of `penstock dev`: their messages are in a file, as AWS would have got them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.dev import targets
from penstock.dev.functions import DevFunctions
from penstock.dev.targets import Deliveries, dev_targets
from penstock_core.limits import DEV_DELIVERIES_KEPT, QUEUE_BYTES_MAX
from penstock_core.push.batch import Answered
from penstock_core.push.targets.target import BusTarget, QueueTarget, TopicTarget
from penstock_service.adapters.direct.places import Keys
from penstock_service.adapters.system import SystemClock
from penstock_service.adapters.targets.aws_targets import TargetsByKind
from tests.support.push_records import StoredRecord, orders

QUEUE = QueueTarget(url="https://sqs.eu-west-1.amazonaws.com/123456789012/pack")
BUS = BusTarget(arn="arn:aws:events:eu-west-1:123456789012:event-bus/orders")


def targets_of(deliveries: Deliveries) -> TargetsByKind:
    return dev_targets(SystemClock(), DevFunctions(), deliveries, lambda _: (Keys("key", "secret"), "us-east-1"))


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def values(found: Sequence[dict[str, Any]]) -> list[str]:
    return [each["message"]["MessageBody"] for each in found]


def test_messages_of_a_queue_are_kept_as_sqs_would_have_got_them(tmp_path: Path) -> None:
    file = tmp_path / ".penstock" / "deliveries.jsonl"
    kept = Deliveries(file)
    batch = orders(StoredRecord(15, value=b"a", key=b"\xff"), StoredRecord(16, value=b"b"))
    assert targets_of(kept).deliver(QUEUE, batch, 50_000) == Answered()
    assert lines_of(file) == kept.lines()
    assert [each["target"] for each in lines_of(file)] == [QUEUE.url] * 2
    assert values(lines_of(file)) == ["a", "b"]
    attributes = lines_of(file)[0]["message"]["MessageAttributes"]
    assert attributes["penstock-offset"] == {"DataType": "Number", "StringValue": "15"}
    assert attributes["penstock-key"] == {"DataType": "Binary", "BinaryValue": "/w=="}


def test_events_of_a_bus_are_kept_as_eventbridge_would_have_got_them() -> None:
    kept = Deliveries()
    assert targets_of(kept).deliver(BUS, orders(StoredRecord(15, value=b'{"id": 1}')), 50_000) == Answered()
    [line] = kept.lines()
    event = line["message"]
    assert (event["EventBusName"], event["Source"], event["DetailType"]) == (BUS.arn, "penstock", "orders")
    assert json.loads(event["Detail"])["value"] == {"id": 1}


def test_target_is_tried_and_nothing_is_kept() -> None:
    kept = Deliveries()
    for target in (QUEUE, BUS):
        targets_of(kept).check(target)
    assert kept.lines() == []


def test_record_that_sqs_would_refuse_fails_and_its_neighbour_comes() -> None:
    kept = Deliveries()
    batch = orders(StoredRecord(15, value=b"x" * (QUEUE_BYTES_MAX + 1)), StoredRecord(16, value=b"b"))
    answer = targets_of(kept).deliver(QUEUE, batch, 50_000)
    assert isinstance(answer, Answered)
    assert [offset for _, offset in answer.failed] == [15]
    assert values(kept.lines()) == ["b"]


def test_newest_of_each_target_are_kept_and_the_file_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "deliveries.jsonl"
    kept = Deliveries(file)
    kept.note("other", [{"MessageBody": "only"}])
    for number in range(3 * DEV_DELIVERIES_KEPT):
        kept.note("queue", [{"MessageBody": str(number)}])
        assert len(lines_of(file)) <= 2 * DEV_DELIVERIES_KEPT + 2
    newest = [str(number) for number in range(2 * DEV_DELIVERIES_KEPT, 3 * DEV_DELIVERIES_KEPT)]
    assert values(kept.lines()) == ["only", *newest]
    assert values(lines_of(file))[-DEV_DELIVERIES_KEPT:] == newest


def test_bytes_of_all_targets_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "DEV_DELIVERIES_BYTES_MAX", 1_000)
    file = tmp_path / "deliveries.jsonl"
    kept = Deliveries(file)
    for number in range(50):
        kept.note(f"queue{number}", [{"MessageBody": f"{number}" + "x" * 100}])
        assert file.stat().st_size <= 2_500
    assert [each["target"] for each in kept.lines()] == [f"queue{number}" for number in range(45, 50)]


def test_only_its_owner_reads_the_file_and_a_new_server_begins_it_anew(tmp_path: Path) -> None:
    file = tmp_path / ".penstock" / "deliveries.jsonl"
    Deliveries(file).note("queue", [{"MessageBody": "old"}])
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    again = Deliveries(file)
    assert not file.exists()
    again.note("queue", [{"MessageBody": "new"}])
    assert values(lines_of(file)) == ["new"]


def test_file_that_cannot_be_written_is_logged_and_the_delivery_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "inside").write_text("in the way")
    kept = Deliveries(tmp_path / "inside" / "deliveries.jsonl")
    assert targets_of(kept).deliver(QUEUE, orders(StoredRecord(15)), 50_000) == Answered()
    assert "deliveries.jsonl cannot be written" in caplog.text


def test_topic_is_no_target_that_is_called() -> None:
    with pytest.raises(ValueError, match="transaction"):
        targets_of(Deliveries()).deliver(TopicTarget(topic="mirror"), orders(StoredRecord(1)), 1_000)  # type: ignore[arg-type]
