"""The rows that append and read: each holds on a service in memory, and finds the fault that it is for."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.http.http_message import Response
from penstock.prove.rows import records
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.storage.head_item import head_item
from tests.sdk.prove.stubbed_stage import StubbedStage, refusal


def _refuses_above(stubbed: StubbedStage, limit: int, code: str | None) -> None:
    def instead(method: str, path: str, body: bytes) -> Response | None:
        return refusal(413, code) if path == "/v1/produce" and len(body) > limit else None

    before = stubbed.transport.instead
    stubbed.transport.instead = lambda *call: before(*call) or instead(*call)


def test_record_that_comes_back_from_the_zones_holds(stubbed: StubbedStage) -> None:
    found = stubbed.ask(records.wire)
    assert (found.ruling.value, found.figures) == ("holds", {"s3_puts": 3})
    assert "3 directory buckets and 0 ordinary ones" in found.fact


def test_record_that_went_into_no_zone_is_found(stubbed: StubbedStage) -> None:
    stubbed.transport.calls["/v1/produce"] = "dynamodb.PutItem=1,dynamodb.UpdateItem=1"
    assert stubbed.ask(records.wire).ruling.value == "does not hold"


def test_record_that_came_back_changed_is_found(stubbed: StubbedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "random_bytes", lambda count: b"x" * count)
    read = type(stubbed.stage).read
    monkeypatch.setattr(
        type(stubbed.stage), "read", lambda stage, topic, offset=0: read(stage, _other(stubbed, topic), offset)
    )
    found = stubbed.ask(records.wire)
    assert found.ruling.value == "does not hold"
    assert "changed" in found.fact


def _other(stubbed: StubbedStage, topic: str) -> str:
    """A topic with another record."""
    del topic
    other = stubbed.stage.new_topic()
    stubbed.stage.append(other, b"other")
    return other


def test_limits_hold_where_lambda_refuses_what_we_do_not_see(stubbed: StubbedStage) -> None:
    _refuses_above(stubbed, 4_700_000, None)
    found = stubbed.ask(records.limits)
    assert found.ruling.value == "holds", found.fact
    assert found.fact == "3.9 MB: 200, 4.4 MB: 413, 4.8 MB: 413"


def test_limits_are_wrong_if_our_function_answers_above_lambdas(stubbed: StubbedStage) -> None:
    assert stubbed.ask(records.limits).ruling.value == "does not hold"


def test_limits_are_wrong_if_a_body_below_ours_is_refused(stubbed: StubbedStage) -> None:
    _refuses_above(stubbed, 3_000_000, None)
    assert stubbed.ask(records.limits).fact == "3.9 MB: 413, 4.4 MB: 413, 4.8 MB: 413"
    assert stubbed.ask(records.limits).ruling.value == "does not hold"


def test_latency_holds_and_tells_percentiles_from_here_and_from_the_function(stubbed: StubbedStage) -> None:
    found = stubbed.ask(records.quorum)
    assert found.ruling.value == "holds", found.fact
    assert (found.figures["quorum_function_p50_ms"], found.figures["quorum_count"]) == (12.0, 50)
    assert found.figures["all_count"] == 25


@pytest.mark.parametrize("fault", ["slow", "zone", "refused"])
def test_latency_does_not_hold_if_it_is_slow_loses_a_zone_or_is_refused(stubbed: StubbedStage, fault: str) -> None:
    if fault == "slow":
        stubbed.transport.took_ms = 1_200.0
    elif fault == "zone":
        stubbed.service.admin().take_zone_out("c")
    else:
        stubbed.transport.instead = lambda _, path, __: (
            refusal(503, "NOT_ENOUGH_ZONES") if path == "/v1/produce" else None
        )
    assert stubbed.run(next(each for each in records.record_rows() if each.ask is records.quorum))[
        0
    ].proof.ruling.value == ("does not hold")


def _head_with(*zones: int) -> dict[str, Any]:
    refs = [
        Ref(
            segment_id=SegmentId(bytes(16)),
            position=0,
            length=1,
            offset_span=1,
            record_count=1,
            max_timestamp_ms=-1,
            zones=each,
        )
        for each in zones
    ]
    key = PartitionKey(TopicId("0" * 32), Partition(0))
    head = Head(
        next_offset=Offset(len(refs)),
        log_start_offset=Offset(0),
        tail_base=Offset(0),
        rolled_max_timestamp_ms=-1,
        tail=tuple(refs),
    )
    return {"Item": head_item(key, head)}


def test_share_of_late_zones_is_counted_in_the_heads(stubbed: StubbedStage) -> None:
    stubbed.aws.answers["dynamodb.GetItem"] = _head_with(0b111, 0b011, 0b110, 0b111)
    found = stubbed.ask(records.late_zones)
    assert (found.ruling.value, found.figures) == ("holds", {"appends": 16, "late": 8, "zones_at_least": 2})
    asked = [params for name, params in stubbed.aws.asked if name == "dynamodb.GetItem"]
    assert asked[0]["TableName"] == "log"
    assert asked[0]["Key"]["sk"] == {"S": "head"}


def test_append_in_fewer_zones_than_a_quorum_is_found(stubbed: StubbedStage) -> None:
    stubbed.aws.answers["dynamodb.GetItem"] = _head_with(0b111, 0b001)
    assert stubbed.ask(records.late_zones).ruling.value == "does not hold"


@pytest.mark.parametrize(("took_ms", "ruling"), [(29.0, "holds"), (31.0, "does not hold")])
def test_time_of_a_function_is_compared_with_the_bills(stubbed: StubbedStage, took_ms: float, ruling: str) -> None:
    stubbed.transport.took_ms = took_ms
    found = stubbed.ask(records.function_time)
    assert (found.ruling.value, found.figures) == (ruling, {"mean_ms": took_ms, "assumed_ms": 30})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_DELAY_MS", 300)
    monkeypatch.setattr(records, "_DELAYED", 2)
    monkeypatch.setattr(records, "LATE_MS_MAX", 1_200)


@pytest.mark.usefixtures("quick")
def test_delayed_records_that_come_in_time_hold(stubbed: StubbedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LATE_MS_MAX", 30_000)  # the machine may be busy
    stubbed.aws.answers["events.DescribeRule"] = {"State": "ENABLED"}
    found = stubbed.ask(records.delayed)
    assert found.ruling.value == "holds", found.fact
    assert (found.figures["late_count"], found.figures["s3_puts"]) == (2, 2)
    assert {str(params) for name, params in stubbed.aws.asked if name == "events.DescribeRule"} == {
        "{'Name': 'penstock-promote'}"
    }


@pytest.mark.usefixtures("quick")
def test_rule_that_the_first_delayed_record_leaves_off_is_found(tmp_path: Path) -> None:
    stubbed = StubbedStage(tmp_path, is_own=True)
    stubbed.aws.answers["events.DescribeRule"] = {"State": "DISABLED"}
    found = stubbed.ask(records.delayed)
    assert found.ruling.value == "does not hold"
    assert "still off" in found.fact


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", ["never", "early"])
def test_delayed_records_that_never_come_or_come_early_are_found(stubbed: StubbedStage, fault: str) -> None:
    stubbed.aws.answers["events.DescribeRule"] = {"State": "ENABLED"}

    def instead(method: str, path: str, body: bytes) -> Response | None:
        if not path.endswith("/records"):
            return None
        if fault == "early":
            topic, [record] = path.split("/")[3], json.loads(body)["records"]
            stubbed.stage.append(topic, str(record["value"]).encode())
        return Response(200, {}, b'{"offsets": []}')

    stubbed.transport.instead = instead
    found = stubbed.ask(records.delayed)
    assert found.ruling.value == "does not hold", found.fact


def test_stage_without_delayed_records_stays_without(tmp_path: Path, stubbed: StubbedStage) -> None:
    stubbed.aws.answers["events.DescribeRule"] = {"State": "DISABLED"}
    found = stubbed.ask(records.delayed)
    assert found.ruling.value == "left out"
    assert "--deploy" in found.fact
    assert not any(each.endswith("/records") for each in stubbed.transport.sent)


def test_stage_without_wake_ups_has_none_to_measure(stubbed: StubbedStage) -> None:
    assert stubbed.ask(records.wake_ups).fact == "the stage has no wake-ups"


def test_consumer_on_long_polls_is_no_proof_of_wake_ups(stubbed: StubbedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens at the address. The end-to-end test has a consumer that is woken."""
    monkeypatch.setattr(records, "_SLEEP_MS_MAX", 3_000)
    place = b'{"realtime": "ws://127.0.0.1:9/event/realtime", "host": "h", "realtime_host": "r", "namespace": "wake"}'
    stubbed.transport.instead = lambda _, path, __: Response(200, {}, place) if path == "/v1/wake-ups" else None
    found = stubbed.ask(records.wake_ups)
    assert found.ruling.value == "does not hold"
    assert "long polls" in found.fact
