"""The log on the deployed stack keeps its promises under concurrent calls, and when a function dies.

Threaded and asynchronous clients on the deployed stack: each reads the records and commits of the other.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from penstock import AccessDeniedError, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from penstock.http.async_transport import AsyncHttpTransport
from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from tests.end_to_end.fault_proxy import Faults, fault_proxy
from tests.end_to_end.local_stack import NOW_MS, Stack
from tests.end_to_end.raw_requests import append, read_all, storage_calls

pytestmark = pytest.mark.stack
APPENDS = 200


def test_two_producers_on_one_partition_leave_dense_offsets_and_never_retry(
    transport: HttpTransport, topic: str
) -> None:
    append(transport, topic, b"warm")
    answers: dict[int, list[tuple[Response, Any]]] = {0: [], 1: []}

    def produce(number: int) -> None:
        for count in range(APPENDS):
            # Under acks=quorum the answer may leave before the third put begins: then it counts two.
            answers[number].append(append(transport, topic, b"%d-%d" % (number, count), acks="all"))

    threads = [threading.Thread(target=produce, args=(number,)) for number in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    acknowledged = {
        result["base_offset"]: b"%d-%d" % (n, count)
        for n, results in answers.items()
        for count, (_, result) in enumerate(results)
    }
    assert sorted(acknowledged) == list(range(1, 2 * APPENDS + 1))
    for results in answers.values():
        offsets = [result["base_offset"] for _, result in results]
        assert offsets == sorted(offsets)
    assert read_all(transport, topic) == [(0, b"warm"), *sorted(acknowledged.items())]
    for answer, result in (pair for results in answers.values() for pair in results):
        calls = storage_calls(answer)
        rolls = calls.get("dynamodb.PutItem", 0)
        assert rolls <= 1, result
        assert (calls["s3.PutObject"], calls["dynamodb.UpdateItem"]) == (3, 1 + rolls)
    rolls_total = sum(
        storage_calls(answer).get("dynamodb.PutItem", 0) for results in answers.values() for answer, _ in results
    )
    assert rolls_total >= 2 * APPENDS // TAIL_ROLL_REFS - 1


def test_warm_produce_and_tail_fetch_cost_what_is_promised(transport: HttpTransport, topic: str) -> None:
    append(transport, topic, b"warm")
    answer, _ = append(transport, topic, b"x", acks="all")
    assert storage_calls(answer) == {"s3.PutObject": 3, "dynamodb.UpdateItem": 1}
    body = json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 1}]}).encode()
    transport.call("POST", "/v1/fetch", {}, {}, body)
    answer = transport.call("POST", "/v1/fetch", {}, {}, body)
    # An instance keeps the bytes that it read a moment ago. If the moment is over, it gets them again.
    assert storage_calls(answer) in ({"dynamodb.GetItem": 1}, {"dynamodb.GetItem": 1, "s3.GetObject": 1})


def test_consumer_that_reads_while_the_tail_rolls_sees_every_record_once(transport: HttpTransport, topic: str) -> None:
    total = 6 * TAIL_ROLL_REFS

    def produce() -> None:
        for count in range(total):
            append(transport, topic, b"%d" % count)

    thread = threading.Thread(target=produce)
    thread.start()
    seen: list[tuple[int, bytes | None]] = []
    with Consumer(transport=transport, fetch_max_bytes=500, fetch_wait_ms=1_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(seen) < total:
            seen += [(record.offset, record.value) for record in consumer.poll(timeout_ms=20_000)]
    thread.join()
    assert seen == [(count, b"%d" % count) for count in range(total)]


@pytest.fixture
def faults(stack: Stack) -> Iterator[Faults]:
    """Faults between the function produce and DynamoDB, by a proxy, during one test."""
    lambdas = stack.root_client("lambda")
    before = lambdas.get_function_configuration(FunctionName="penstock-produce")["Environment"]["Variables"]
    faults = Faults()
    with fault_proxy(stack.endpoint_url, faults.decide) as proxy_url:
        through = {**before, "AWS_ENDPOINT_URL_DYNAMODB": proxy_url}
        lambdas.update_function_configuration(FunctionName="penstock-produce", Environment={"Variables": through})
        try:
            yield faults
        finally:
            lambdas.update_function_configuration(FunctionName="penstock-produce", Environment={"Variables": before})


def test_function_killed_between_put_and_update_leaves_nothing_and_the_retry_works(
    transport: HttpTransport, topic: str, faults: Faults
) -> None:
    append(transport, topic, b"before")
    batch = encode([NewRecord(NOW_MS, None, b"killed")])
    header = {"batches": [{"topic": topic, "partition": 0, "length": len(batch)}]}
    faults.kill_before.append("UpdateItem")
    answer = transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, [batch]))
    assert faults.done == ["UpdateItem"]
    assert answer.status >= 500
    assert read_all(transport, topic) == [(0, b"before")]
    _, result = append(transport, topic, b"again")
    assert result["base_offset"] == 1
    assert read_all(transport, topic) == [(0, b"before"), (1, b"again")]


def test_append_whose_answer_is_lost_says_maybe_applied_and_is_never_repeated(
    transport: HttpTransport, topic: str, faults: Faults
) -> None:
    append(transport, topic, b"before")
    faults.lose_answer_of.append("UpdateItem")
    _, result = append(transport, topic, b"lost")
    assert faults.done == ["UpdateItem"]
    assert result["error"]["maybe_applied"] is True
    assert read_all(transport, topic) == [(0, b"before"), (1, b"lost")]


def test_sdk_delivers_although_the_function_is_killed(transport: HttpTransport, topic: str, faults: Faults) -> None:
    faults.kill_before.append("UpdateItem")
    with Producer(transport=transport) as producer:
        metadata = producer.send(topic, b"value", partition=0).result()
    assert faults.done == ["UpdateItem"]
    assert (0, b"value") in read_all(transport, topic)
    assert metadata.offset == 0


@pytest.mark.parametrize("acks", ["none", "leader", "quorum", "all"])
def test_records_are_there_at_once_with_any_acks(transport: HttpTransport, topic: str, acks: str) -> None:
    append(transport, topic, b"value", acks=acks)
    assert read_all(transport, topic) == [(0, b"value")]


def test_segment_lies_in_every_zone_and_one_is_enough_to_read_it(
    stack: Stack, transport: HttpTransport, topic: str
) -> None:
    append(transport, topic, b"value", acks="all")
    s3 = stack.root_client("s3")
    buckets = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"] if "zone" in bucket["Name"]]
    assert len(buckets) == 3
    held = [{item["Key"]: item["ETag"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]} for bucket in buckets]
    newest = max(held[0], key=lambda key: key.rpartition("/")[2])
    assert len({zone[newest] for zone in held}) == 1
    for bucket in buckets[1:]:
        s3.delete_object(Bucket=bucket, Key=newest)
    assert read_all(transport, topic) == [(0, b"value")]


RECORDS = 600
RECORD_BYTES = 10_000  # all records together exceed one request of 4 MiB
DEADLINE_S = 120

Found = TypeVar("Found")
Sent = dict[TopicPartition, list[tuple[int, bytes]]]  # offset and value of each acknowledged record


def _value(number: int) -> bytes:
    return b"%d" % number + b"x" * RECORD_BYTES


def _async_transport(stack: Stack, secret: str | None = None) -> AsyncHttpTransport:
    return AsyncHttpTransport(stack.configuration(secret_access_key=secret))


def _run(main: Callable[[], Awaitable[Found]]) -> Found:
    """Runs `main` in an event loop of its own. No task may be left at the end."""

    async def checked() -> Found:
        async with asyncio.timeout(DEADLINE_S):
            found = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    return asyncio.run(checked())


def _send_by_threads(stack: Stack, topic: str) -> Sent:
    with Producer(transport=stack.transport(), compression_type="none") as producer:
        futures = [producer.send(topic, _value(number), partition=number % 3) for number in range(RECORDS)]
    sent: Sent = {}
    for number, future in enumerate(futures):
        at = future.result()
        sent.setdefault(TopicPartition(at.topic, at.partition), []).append((at.offset, _value(number)))
    return sent


def _send_by_asyncio(stack: Stack, topic: str) -> Sent:
    async def main() -> Sent:
        async with AsyncProducer(transport=_async_transport(stack), compression_type="none") as producer:
            futures = [await producer.send(topic, _value(number), partition=number % 3) for number in range(RECORDS)]
        sent: Sent = {}
        for number, future in enumerate(futures):
            at = await future
            sent.setdefault(TopicPartition(at.topic, at.partition), []).append((at.offset, _value(number)))
        return sent

    return _run(main)


def _read_by_threads(stack: Stack, topic: str, count: int) -> Sent:
    read: Sent = {}
    with Consumer(topic, transport=stack.transport(), group_id="g", consumer_timeout_ms=DEADLINE_S * 1_000) as consumer:
        for _, record in zip(range(count), consumer, strict=False):
            read.setdefault(TopicPartition(topic, record.partition), []).append((record.offset, record.value or b""))
    return read


def _read_by_asyncio(stack: Stack, topic: str, count: int) -> Sent:
    async def main() -> Sent:
        read: Sent = {}
        async with AsyncConsumer(topic, transport=_async_transport(stack), group_id="g") as consumer:
            for _ in range(count):
                record = await anext(consumer)
                at = TopicPartition(topic, record.partition)
                read.setdefault(at, []).append((record.offset, record.value or b""))
        return read

    return _run(main)


@pytest.mark.parametrize(
    ("send", "read_first", "read_rest"),
    [(_send_by_threads, _read_by_asyncio, _read_by_threads), (_send_by_asyncio, _read_by_threads, _read_by_asyncio)],
    ids=["threads-asyncio-threads", "asyncio-threads-asyncio"],
)
def test_client_continues_at_the_commit_of_the_other_client_and_reads_its_records(
    stack: Stack,
    topic: str,
    send: Callable[[Stack, str], Sent],
    read_first: Callable[[Stack, str, int], Sent],
    read_rest: Callable[[Stack, str, int], Sent],
) -> None:
    sent = send(stack, topic)
    first = read_first(stack, topic, RECORDS // 3)
    rest = read_rest(stack, topic, RECORDS - RECORDS // 3)
    assert {at: first.get(at, []) + rest.get(at, []) for at in sent} == sent
    assert all([offset for offset, _ in each] == list(range(RECORDS // 3)) for each in sent.values())


def test_wrong_signature_is_refused(stack: Stack, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(transport=_async_transport(stack, secret="wrong")) as producer:
            with pytest.raises(AccessDeniedError):
                await producer.send(topic, b"v")

    _run(main)
