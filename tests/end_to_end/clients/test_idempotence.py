"""Idempotent appends on the deployed stack, by hand-made requests: DynamoDB evaluates their conditions."""

import json
import threading
from typing import Any

import pytest

from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock_core.limits import HEAD_PRODUCERS_KEPT, TAIL_ROLL_REFS
from penstock_core.records import frame
from penstock_core.records.codec import BatchBuilder
from tests.end_to_end.local_stack import NOW_MS, Stack
from tests.end_to_end.raw_requests import read_all, storage_calls

pytestmark = pytest.mark.stack


def send(
    transport: HttpTransport, topic: str, first: int, *values: bytes, producer_id: int = 7, epoch: int = 0
) -> tuple[Response, dict[str, Any]]:
    builder = BatchBuilder()
    for value in values:
        builder.append(NOW_MS, None, value)
    batch = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=first)
    # Under acks=quorum the answer may leave before the third put begins: then it counts two.
    header = {"acks": "all", "batches": [{"topic": topic, "partition": 0, "length": len(batch)}]}
    answer = transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, [batch]))
    assert answer.status == 200, answer.body
    [result] = json.loads(answer.body)["results"]
    return answer, result


def refusal(result: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = result["error"]
    return error


def test_repeat_is_answered_as_the_first_and_costs_a_read_if_it_is_older(transport: HttpTransport, topic: str) -> None:
    _, first = send(transport, topic, 0, b"a", b"b")
    answer, second = send(transport, topic, 2, b"c")
    assert storage_calls(answer) == {"s3.PutObject": 3, "dynamodb.UpdateItem": 1}
    answer, again = send(transport, topic, 0, b"a", b"b")
    assert again == first
    assert storage_calls(answer) == {"s3.PutObject": 3, "dynamodb.UpdateItem": 1, "s3.GetObject": 1}
    answer, again = send(transport, topic, 2, b"c")
    assert again == second
    assert storage_calls(answer) == {"s3.PutObject": 3, "dynamodb.UpdateItem": 1}
    other = refusal(send(transport, topic, 2, b"x")[1])
    assert (other["code"], other["maybe_applied"]) == ("OUT_OF_ORDER_SEQUENCE", False)
    assert read_all(transport, topic) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_gap_and_older_epoch_are_refused(transport: HttpTransport, topic: str) -> None:
    send(transport, topic, 0, b"a")
    gap = refusal(send(transport, topic, 5, b"f")[1])
    assert (gap["code"], gap["expected_sequence"], gap["maybe_applied"]) == ("OUT_OF_ORDER_SEQUENCE", 1, False)
    send(transport, topic, 0, b"b", epoch=3)
    fenced = refusal(send(transport, topic, 1, b"c")[1])
    assert (fenced["code"], fenced["epoch"]) == ("PRODUCER_FENCED", 3)
    assert read_all(transport, topic) == [(0, b"a"), (1, b"b")]


@pytest.mark.minutes
def test_repeats_at_once_yield_one_copy(transport: HttpTransport, topic: str) -> None:
    """Four threads send each of 40 batches at the same time. One of them appends, and all get the same answer."""
    told: list[list[dict[str, Any]]] = []
    for number in range(40):
        results: list[dict[str, Any]] = []
        threads = [
            threading.Thread(target=lambda: results.append(send(transport, topic, number, b"%d" % number)[1]))  # noqa: B023 - joined below
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told.append(results)
    assert read_all(transport, topic) == [(number, b"%d" % number) for number in range(40)]
    assert [[result["base_offset"] for result in results] for results in told] == [[n] * 4 for n in range(40)]


def test_producer_that_left_the_head_is_still_known(transport: HttpTransport, topic: str, stack: Stack) -> None:
    _, first = send(transport, topic, 0, b"a", b"b")
    for number in range(HEAD_PRODUCERS_KEPT + 2 * TAIL_ROLL_REFS):
        _, result = send(transport, topic, 0, b"%d" % number, producer_id=2**40 + number)
        assert "error" not in result
    [deployed] = stack.root_client("cloudformation").describe_stacks(StackName="Penstock")["Stacks"]
    [table] = [each["OutputValue"] for each in deployed["Outputs"] if each["OutputKey"] == "LogTable"]
    items = stack.root_client("dynamodb").scan(TableName=table, ConsistentRead=True)["Items"]
    assert any(item["sk"]["S"] == "producer#AAAAAAAAAAc" and "expires_at_s" in item for item in items)
    answer, again = send(transport, topic, 0, b"a", b"b")
    assert again == first
    calls = storage_calls(answer)
    assert (calls["dynamodb.UpdateItem"], calls["dynamodb.GetItem"], calls["dynamodb.Query"]) == (1, 1, 1)
    answer, next_result = send(transport, topic, 2, b"c")
    assert next_result["base_offset"] == 2 + HEAD_PRODUCERS_KEPT + 2 * TAIL_ROLL_REFS
    assert storage_calls(answer)["dynamodb.UpdateItem"] == 2
    answer, _ = send(transport, topic, 3, b"d")
    assert storage_calls(answer)["dynamodb.UpdateItem"] == 1
