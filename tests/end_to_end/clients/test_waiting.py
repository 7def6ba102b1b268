"""Consumers that wait on the deployed stack: woken over a WebSocket, again after it is cut, and without one."""

import socket
from collections.abc import Iterator, Mapping

import pytest

from penstock import Consumer, Producer, TopicPartition
from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock.system import monotonic_ms
from penstock.wake_ups.wake_thread import WakeThread
from penstock_core.limits import SDK_SAFETY_NET_MS
from tests.end_to_end.local_stack import Stack
from tests.sdk.polling import poll_count
from tests.support.deadlines import until

pytestmark = pytest.mark.stack


class Watched(HttpTransport):
    """Counts fetches by the time that they wait. `has_wake_ups` is false for a stage without them."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack.configuration())
        self.armed = 0
        self.polls = 0
        self.has_wake_ups = True

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/wake-ups" and not self.has_wake_ups:
            return Response(200, {}, b'{"realtime": null}')
        answer = super().call(method, path, query, headers, body)
        if path == "/v1/fetch":
            self.armed += b'"arm":true' in body and answer.status == 200 and b'"armed": true' in _spaced(answer.body)
            self.polls += b'"wait_ms":500' in body
        return answer


def _spaced(frame: bytes) -> bytes:
    return frame.replace(b'":', b'": ')


@pytest.fixture
def watched(stack: Stack) -> Iterator[Watched]:
    transport = Watched(stack)
    yield transport
    transport.close()


@pytest.fixture
def producer(stack: Stack) -> Iterator[Producer]:
    with Producer(transport=stack.transport(), linger_ms=0) as producer:
        yield producer


def _asleep(consumer: Consumer, watched: Watched) -> None:
    armed = watched.armed
    until(lambda: watched.armed > armed, step=lambda: consumer.poll(timeout_ms=20))


def test_waiting_consumer_is_woken(watched: Watched, producer: Producer, topic: str) -> None:
    with Consumer(topic, transport=watched) as consumer:
        _asleep(consumer, watched)
        began_ms = monotonic_ms()
        producer.send(topic, b"x", partition=2).result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
        assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2
    assert watched.polls == 0


def test_many_groups_on_one_partition_are_woken_by_one_append(stack: Stack, producer: Producer, topic: str) -> None:
    transports = [Watched(stack) for _ in range(5)]
    consumers = [Consumer(transport=each, group_id=f"{topic}-{number}") for number, each in enumerate(transports)]
    for consumer, watched in zip(consumers, transports, strict=True):
        consumer.assign([TopicPartition(topic, 0)])
        _asleep(consumer, watched)
    began_ms = monotonic_ms()
    producer.send(topic, b"x", partition=0).result()
    for consumer in consumers:
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2
    assert sum(each.polls for each in transports) == 0
    for consumer, watched in zip(consumers, transports, strict=True):
        consumer.close()
        watched.close()


def test_consumer_goes_on_after_its_socket_is_cut(
    watched: Watched, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[socket.socket] = []
    opened = WakeThread._open

    def remember(self: WakeThread, effect: object) -> None:
        opened(self, effect)  # type: ignore[arg-type]  # as given
        assert self._link is not None
        links.append(self._link)

    monkeypatch.setattr(WakeThread, "_open", remember)
    with Consumer(topic, transport=watched) as consumer:
        _asleep(consumer, watched)
        links[0].shutdown(socket.SHUT_RDWR)
        _asleep(consumer, watched)
        assert len(links) == 2
        producer.send(topic, b"x").result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


def test_consumer_polls_where_the_stage_has_no_wake_ups(watched: Watched, producer: Producer, topic: str) -> None:
    watched.has_wake_ups = False
    with Consumer(topic, transport=watched) as consumer:
        until(lambda: watched.polls, step=lambda: consumer.poll(timeout_ms=20))
        producer.send(topic, b"x").result()
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert watched.armed == 0
