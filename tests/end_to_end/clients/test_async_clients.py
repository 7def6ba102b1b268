"""Threaded and asynchronous clients on the deployed stack: each reads the records and commits of the other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from penstock import AccessDeniedError, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from penstock.http.async_transport import AsyncHttpTransport
from tests.end_to_end.local_stack import Stack

pytestmark = pytest.mark.stack
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
