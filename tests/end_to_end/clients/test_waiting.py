"""Consumers that wait on the deployed stack, threaded and asynchronous.

They are woken over a WebSocket, again after it is cut, and without one.

Wake-ups on the deployed stack: a reader on the WebSocket hears of the append that it waits for.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import urllib3

from localstack.clients import ACCOUNT
from penstock import AsyncConsumer, Consumer, Producer, TopicPartition
from penstock.group import membership
from penstock.http.async_transport import AsyncHttpTransport
from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock.system import monotonic_ms
from penstock.wake_ups.link import Link
from penstock_core.limits import SDK_SAFETY_NET_MS, WAKE_UP_PARTITIONS_MAX
from penstock_core.records import frame
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.raw_requests import append, storage_calls
from tests.end_to_end.wake_up_reader import signed_headers, wake_up_reader
from tests.sdk.client_kinds import LoopedConsumer, running_loop
from tests.sdk.polling import poll_count
from tests.support.deadlines import until

pytestmark = pytest.mark.stack


class Seen:
    """Counts the fetches that arm and those that poll, and the heartbeats that look and find all armed.

    `has_wake_ups` is false for a stage without them.
    """

    def __init__(self) -> None:
        self.fetches = 0
        self.armed = 0
        self.polls = 0
        self.looks = 0
        self.has_wake_ups = True

    def instead(self, path: str) -> Response | None:
        """The answer of a stage without wake-ups."""
        return Response(200, {}, b'{"realtime": null}') if path == "/v1/wake-ups" and not self.has_wake_ups else None

    def see(self, path: str, body: bytes, answer: Response) -> Response:
        if path == "/v1/fetch":
            self.fetches += 1
            self.armed += b'"arm":true' in body and answer.status == 200 and b'"armed": true' in _spaced(answer.body)
            self.polls += b'"wait_ms":500' in body
        elif path.endswith("/heartbeat") and b'"watched"' in body and answer.status == 200:
            watched, armed = json.loads(body)["watched"], json.loads(answer.body)["armed"]
            self.looks += len(watched) == sum(map(len, armed.values()))
        return answer


class Watched(HttpTransport):
    def __init__(self, stack: Stack, seen: Seen) -> None:
        super().__init__(stack.configuration())
        self._seen = seen

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        instead = self._seen.instead(path)
        return instead or self._seen.see(path, body, super().call(method, path, query, headers, body))


class AsyncWatched(AsyncHttpTransport):
    def __init__(self, stack: Stack, seen: Seen) -> None:
        super().__init__(stack.configuration())
        self._seen = seen

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        instead = self._seen.instead(path)
        return instead or self._seen.see(path, body, await super().call(method, path, query, headers, body))


class Clients(Seen):
    """Makes consumers of one kind, and sees what all of them do."""

    def __init__(self, stack: Stack, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__()
        self._stack = stack
        self._loop = loop

    def consumer(self, *topics: str, **options: Any) -> Any:
        if self._loop is None:
            return Consumer(*topics, transport=Watched(self._stack, self), **options)
        transport = AsyncWatched(self._stack, self)
        return LoopedConsumer(self._loop, AsyncConsumer(*topics, transport=transport, **options))


def _spaced(frame: bytes) -> bytes:
    return frame.replace(b'":', b'": ')


@pytest.fixture(params=["threads", "asyncio"])
def clients(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Clients]:
    if request.param == "threads":
        yield Clients(stack, None)
    else:
        with running_loop() as loop:
            yield Clients(stack, loop)


@pytest.fixture
def producer(stack: Stack) -> Iterator[Producer]:
    with Producer(transport=stack.transport(), linger_ms=0) as producer:
        yield producer


def _asleep(consumer: Any, clients: Clients) -> None:
    armed = clients.armed
    until(lambda: clients.armed > armed, step=lambda: consumer.poll(timeout_ms=20))


def test_waiting_consumer_is_woken(clients: Clients, producer: Producer, topic: str) -> None:
    with clients.consumer(topic) as consumer:
        _asleep(consumer, clients)
        began_ms = monotonic_ms()
        producer.send(topic, b"x", partition=2).result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
        assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2
    assert clients.polls == 0


def test_idle_member_looks_by_its_heartbeats_and_is_woken(
    clients: Clients, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "SDK_LOOK_AHEAD_MS", 2 * SDK_SAFETY_NET_MS)  # each heartbeat looks
    with clients.consumer(topic, group_id=topic, heartbeat_interval_ms=250) as consumer:
        _asleep(consumer, clients)
        until(lambda: clients.looks, step=lambda: consumer.poll(timeout_ms=20))
        fetches, looks = clients.fetches, clients.looks
        until(lambda: clients.looks >= looks + 2, step=lambda: consumer.poll(timeout_ms=20))
        assert clients.fetches == fetches
        producer.send(topic, b"x", partition=2).result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert clients.polls == 0


def test_many_groups_on_one_partition_are_woken_by_one_append(clients: Clients, producer: Producer, topic: str) -> None:
    consumers = [clients.consumer(group_id=f"{topic}-{number}") for number in range(5)]
    for consumer in consumers:
        consumer.assign([TopicPartition(topic, 0)])
        _asleep(consumer, clients)
    began_ms = monotonic_ms()
    producer.send(topic, b"x", partition=0).result()
    for consumer in consumers:
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2
    assert clients.polls == 0
    for consumer in consumers:
        consumer.close()


def test_consumer_goes_on_after_its_socket_is_cut(
    stack: Stack, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[socket.socket] = []
    opened = Link.open

    def remember(self: Link, host: str, port: int, *, is_tls: bool) -> None:
        opened(self, host, port, is_tls=is_tls)
        assert self._socket is not None
        links.append(self._socket)

    monkeypatch.setattr(Link, "open", remember)
    clients = Clients(stack, None)
    with clients.consumer(topic) as consumer:
        _asleep(consumer, clients)
        links[0].shutdown(socket.SHUT_RDWR)
        _asleep(consumer, clients)
        assert len(links) == 2
        producer.send(topic, b"x").result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


def test_consumer_polls_where_the_stage_has_no_wake_ups(clients: Clients, producer: Producer, topic: str) -> None:
    clients.has_wake_ups = False
    with clients.consumer(topic) as consumer:
        until(lambda: clients.polls, step=lambda: consumer.poll(timeout_ms=20))
        producer.send(topic, b"x").result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert clients.armed == 0


T = TypeVar("T")


def _place(transport: HttpTransport) -> dict[str, str]:
    answer = transport.call("GET", "/v1/wake-ups", {}, {}, b"")
    assert answer.status == 200, answer.body
    place: dict[str, str] = json.loads(answer.body)
    return place


def _wait_for(transport: HttpTransport, topic: str, *offsets: int) -> tuple[Response, list[dict[str, Any]]]:
    """A fetch that arms: partition 0 from the first offset on, partition 1 from the second, and so on."""
    wanted = [{"topic": topic, "partition": partition, "offset": offset} for partition, offset in enumerate(offsets)]
    answer = transport.call("POST", "/v1/fetch", {}, {}, json.dumps({"partitions": wanted, "arm": True}).encode())
    assert answer.status == 200, answer.body
    header, _ = frame.decode(answer.body)
    results: Any = header["partitions"]
    return answer, results


def _aside(call: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
    return asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def test_append_wakes_the_readers_that_have_armed(stack: Stack, transport: HttpTransport, topic: str) -> None:
    async def run() -> None:
        place = _place(transport)
        assert place["namespace"] == "wake"
        _, results = await _aside(_wait_for, transport, topic, 0, 0, 0)
        topic_id = results[0]["topic_id"]
        channel = f"/wake/{topic_id}/0"
        async with wake_up_reader(stack, place) as reader, wake_up_reader(stack, place) as other:
            for each in (reader, other):
                await each.subscribe(channel)
            answer, results = await _aside(_wait_for, transport, topic, 0, 0, 0)
            assert [each["armed"] for each in results] == [True] * 3
            assert storage_calls(answer) == {"dynamodb.BatchGetItem": 1}, "the first fetch has armed the heads"
            await _aside(append, transport, topic, b"v")
            event = {"topic_id": topic_id, "partition": 0, "next_offset": 1}
            assert await reader.event() == await other.event() == (channel, event)
            answer, results = await _aside(_wait_for, transport, topic, 1)
            assert results[0]["armed"]
            calls = storage_calls(answer)
            assert calls.keys() == {"dynamodb.GetItem", "dynamodb.UpdateItem"}
            assert calls["dynamodb.UpdateItem"] == 1

    asyncio.run(run())


def test_rights_on_wake_ups_name_the_namespace_and_nothing_below_it(
    stack: Stack, transport: HttpTransport, topic: str
) -> None:
    """As on AWS, which has no resource for a channel. A reader with a right on one connects, and is told no record."""
    place = _place(transport)
    api_id, region = place["host"].split(".")[0], stack.region
    api = f"arn:aws:appsync:{region}:{ACCOUNT}:apis/{api_id}"
    namespace = f"{api}/channelNamespace/{place['namespace']}"

    async def answer(name: str, resource: str) -> str:
        statements = [
            {"Effect": "Allow", "Action": "appsync:EventConnect", "Resource": api},
            {"Effect": "Allow", "Action": "appsync:EventSubscribe", "Resource": resource},
        ]
        keys = stack.create_user(name, {"Version": "2012-10-17", "Statement": statements})
        other = replace(stack, access_key_id=keys[0], secret_access_key=keys[1])
        body = json.dumps({"channel": "/wake/topic/0", "events": ["{}"]})
        headers = signed_headers(other, place["host"], body)
        published = urllib3.request("POST", f"{stack.endpoint_url}/event", body=body, headers=headers, retries=False)
        assert published.status in (401, 403)  # whoever is woken may not wake
        async with wake_up_reader(other, place) as reader:
            return await reader.answer_to("/wake/topic/0")

    assert asyncio.run(answer("woken-by-channels", f"{namespace}/*")) == "subscribe_error"
    assert asyncio.run(answer("woken", namespace)) == "subscribe_success"


def test_append_that_nobody_waits_for_makes_no_further_call(transport: HttpTransport, topic: str) -> None:
    append(transport, topic, b"warm")
    answer, _ = append(transport, topic, b"v")
    assert _table_calls(answer) == {"dynamodb.UpdateItem": 1}
    _wait_for(transport, topic, 2)
    answer, _ = append(transport, topic, b"v")
    assert _table_calls(answer) == {"dynamodb.UpdateItem": 1}, "the same update tells whom to wake"


def _table_calls(answer: Response) -> dict[str, int]:
    return {name: count for name, count in storage_calls(answer).items() if name.startswith("dynamodb.")}


def test_one_message_wakes_the_readers_of_many_partitions(stack: Stack, transport: HttpTransport, topic: str) -> None:
    count = WAKE_UP_PARTITIONS_MAX + 1
    created = transport.call(
        "PATCH", f"/v1/topics/{topic}", {}, {"Content-Type": "application/json"}, b'{"partitions": %d}' % count
    )
    topic_id = json.loads(created.body)["topic_id"]

    def send_to_all() -> None:
        with Producer(transport=stack.transport(), linger_ms=200) as producer:
            for partition in range(count):
                producer.send(topic, b"v", partition=partition)
            producer.flush()

    async def run() -> None:
        async with wake_up_reader(stack, _place(transport)) as reader:
            await reader.subscribe(f"/wake/{topic_id}/all")
            await _aside(_wait_for, transport, topic, *[0] * count)
            await _aside(send_to_all)
            _, event = await reader.event()
            assert event == {"topic_id": topic_id, "partitions": {str(number): 1 for number in range(count)}}

    asyncio.run(run())
