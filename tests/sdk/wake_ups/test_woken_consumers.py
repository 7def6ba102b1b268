"""Consumers, with threads and for asyncio, that wait to be woken by a fake AppSync Events over real sockets."""

import logging
import threading
from typing import Any

import pytest

from penstock.consumer import subscriber
from penstock.group import membership
from penstock.http.sigv4 import Keys
from penstock.model import TopicPartition
from penstock.system import monotonic_ms
from penstock.testing import MemoryPenstock
from penstock.wake_ups.rhythm import wake_up_price
from penstock_core.limits import SDK_SAFETY_NET_MS
from tests.sdk.client_kinds import ClientKind
from tests.sdk.polling import poll_count
from tests.support.deadlines import until
from tests.support.fake_app_sync import FakeAppSync
from tests.support.waking_transport import WakingTransport


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> str:
    return service.create_topic("orders", partitions=3).topic_id


def _asleep(transport: WakingTransport, consumer: Any, partitions: int = 3) -> None:
    until(lambda: transport.armed() >= partitions, step=lambda: consumer.poll(timeout_ms=20))


def _send(clients: ClientKind, value: bytes, partition: int = 0) -> None:
    with clients.producer() as producer:
        producer.send("orders", value, partition=partition)


def test_waiting_consumer_is_woken(clients: ClientKind, transport: WakingTransport) -> None:
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        asked = len(transport.fetches)
        began_ms = monotonic_ms()
        for number in range(3):
            _send(clients, b"%d" % number, partition=number)
            assert [each.value for each in poll_count(1, consumer)] == [b"%d" % number]
            _asleep(transport, consumer)
        assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2  # by wake-ups, then
        assert len(transport.fetches) - asked <= 3 * (2 + wake_up_price(3) + 1)
        assert all(not each["wait_ms"] or len(each["partitions"]) == 1 for each in transport.fetches)


def test_waiting_member_of_a_group_is_woken(clients: ClientKind, transport: WakingTransport) -> None:
    with clients.consumer("orders", group_id="g", heartbeat_interval_ms=250, session_timeout_ms=6_000) as consumer:
        _asleep(transport, consumer)
        _send(clients, b"x", partition=2)
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of a member whose heartbeats all look, as if each safety net ended before the next one."""
    monkeypatch.setattr(membership, "SDK_LOOK_AHEAD_MS", 2 * SDK_SAFETY_NET_MS)
    return {"group_id": "g", "heartbeat_interval_ms": 250, "session_timeout_ms": 6_000}


def test_idle_member_looks_by_its_heartbeats_and_fetches_nothing(
    clients: ClientKind, transport: WakingTransport, looking: dict[str, Any]
) -> None:
    with clients.consumer("orders", **looking) as consumer:
        _asleep(transport, consumer)
        until(lambda: transport.looks, step=lambda: consumer.poll(timeout_ms=20))
        fetches, looks = len(transport.fetches), transport.looks
        until(lambda: transport.looks >= looks + 2, step=lambda: consumer.poll(timeout_ms=20))
        assert len(transport.fetches) == fetches


def test_heartbeat_of_a_member_finds_the_record_whose_wake_up_was_lost(
    clients: ClientKind, transport: WakingTransport, looking: dict[str, Any]
) -> None:
    with clients.consumer("orders", **looking) as consumer:
        _asleep(transport, consumer)
        transport.loses = True
        began_ms = monotonic_ms()
        _send(clients, b"x", partition=1)
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
        assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2
        assert transport.looks


def test_idle_consumer_looks_for_partitions_by_its_fetches(
    clients: ClientKind, transport: WakingTransport, service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "told_since_ms", lambda _settings, _now_ms: 0)  # no telling is too old
    with clients.consumer("orders", metadata_max_age_ms=100) as consumer:
        _asleep(transport, consumer)
        metadata, began_ms = transport.metadata, monotonic_ms()
        until(lambda: monotonic_ms() > began_ms + 300, step=lambda: consumer.poll(timeout_ms=20))
        assert transport.metadata == metadata
        service.admin().add_partitions("orders", 5)
        with clients.producer() as producer:
            producer.send("orders", b"x", partition=4)  # each write wakes all: a fetch arms them again, and tells
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


def test_many_consumers_of_one_partition_are_woken_by_one_append(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, orders: str
) -> None:
    consumers = [clients.consumer(group_id=f"g{number}") for number in range(5)]
    for consumer in consumers:
        consumer.assign([TopicPartition("orders", 1)])
    channel = f"/wake/{orders}/1"
    until(
        lambda: events.subscribers(channel) == len(consumers) and transport.armed(),
        step=lambda: [consumer.poll(timeout_ms=5) for consumer in consumers],
    )
    _send(clients, b"x", partition=1)
    for consumer in consumers:
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
        consumer.close()


def test_consumer_reconnects_and_finds_what_came_meanwhile(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync
) -> None:
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        transport.loses = True
        _send(clients, b"lost")
        events.kill()
        assert [each.value for each in poll_count(1, consumer)] == [b"lost"]
        transport.loses = False
        until(lambda: events.links(), step=lambda: consumer.poll(timeout_ms=20))
        _asleep(transport, consumer)
        _send(clients, b"again")
        assert [each.value for each in poll_count(1, consumer)] == [b"again"]
    assert events.seen["connect"] >= 2


def test_each_connection_is_signed_with_the_credentials_of_its_time(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync
) -> None:
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        events.keys = transport.credentials.keys = Keys("AKIDNEXT", "another secret", "another token")
        events.kill()
        until(lambda: events.links(), step=lambda: consumer.poll(timeout_ms=20))
        _asleep(transport, consumer)
        _send(clients, b"x")
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


def test_consumer_polls_while_there_is_no_connection_and_says_so_once(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, caplog: pytest.LogCaptureFixture
) -> None:
    events.is_down = True
    caplog.set_level(logging.INFO, "penstock.wake_ups")
    with clients.consumer("orders") as consumer:
        _send(clients, b"x")
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
        until(lambda: events.seen["handshake"] >= 4, step=lambda: consumer.poll(timeout_ms=20))
        until(lambda: transport.fetches[-1]["wait_ms"] == 500, step=lambda: consumer.poll(timeout_ms=20))
        _send(clients, b"y")
        assert [each.value for each in poll_count(1, consumer)] == [b"y"]
        assert sum("by long polls" in each.message for each in caplog.records) == 1
        events.is_down = False
        _asleep(transport, consumer)
        assert sum("come again" in each.message for each in caplog.records) == 1


def test_consumer_polls_where_the_stage_has_no_wake_ups(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, caplog: pytest.LogCaptureFixture
) -> None:
    transport.place = None
    caplog.set_level(logging.INFO, "penstock.wake_ups")
    with clients.consumer("orders") as consumer:
        until(
            lambda: sum(each["wait_ms"] == 500 for each in transport.fetches) >= 2,
            step=lambda: consumer.poll(timeout_ms=20),
        )
        _send(clients, b"x")
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert transport.asked == 1
    assert events.seen["handshake"] == 0
    assert [each.levelname for each in caplog.records if "by long polls" in each.message] == ["INFO"]


def test_consumer_polls_partitions_whose_channel_is_refused(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, orders: str
) -> None:
    events.refused.add(f"/wake/{orders}/1")
    with clients.consumer("orders") as consumer:
        until(lambda: transport.armed() == 2, step=lambda: consumer.poll(timeout_ms=20))
        until(lambda: transport.fetches[-1]["wait_ms"] == 500, step=lambda: consumer.poll(timeout_ms=20))
        _send(clients, b"x", partition=1)
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


def test_subscriptions_follow_what_is_read(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, orders: str
) -> None:
    def subscribed(*leaves: str) -> None:
        wanted = {f"/wake/{orders}/{leaf}" for leaf in leaves}
        every = [f"/wake/{orders}/{leaf}" for leaf in ("0", "1", "2", "all")]
        until(
            lambda: {each for each in every if events.subscribers(each)} == wanted,
            step=lambda: consumer.poll(timeout_ms=20),
        )

    with clients.consumer() as consumer:
        parts = [TopicPartition("orders", number) for number in range(3)]
        consumer.assign(parts[:2])
        subscribed("0", "1", "all")
        consumer.assign(parts[1:])
        subscribed("1", "2", "all")
        consumer.pause(parts[1])
        subscribed("2", "all")
        consumer.resume(parts[1])
        subscribed("1", "2", "all")
        consumer.assign([])
        subscribed()
        consumer.assign(parts[:1])
        _asleep(transport, consumer, 1)
        _send(clients, b"x")
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert events.seen["connect"] == 1


HOSTILE: list[str | bytes] = [
    "",
    "[]",
    "null",
    "{",
    b"\xff\xfe",
    '{"type":"data","id":"1","event":7}',
    '{"type":"data","id":"1","event":["x",{}]}',
    '{"type":"subscribe_success","id":"99"}',
    '{"type":"subscribe_error","id":"99","errors":null}',
    '{"type":"unsubscribe_success","id":"1"}',
    '{"type":"connection_ack"}',
    '{"type":"publish_success"}',
]


def test_hostile_messages_do_no_harm(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, orders: str
) -> None:
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        for text in HOSTILE:
            events.send(text)
        for number in range(200):
            events.publish(f"/wake/{orders}/0", {"topic_id": orders, "partition": number, "next_offset": number})
        _send(clients, b"x", partition=1)
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]
    assert events.seen["connect"] == 1
    assert len(transport.fetches) < 30


@pytest.mark.parametrize("text", ["x" * 300_000, '{"type":"connection_error","errors":[]}', '{"type":"error"}'])
def test_message_that_ends_the_connection_costs_a_new_one(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync, text: str
) -> None:
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        events.send(text)
        until(lambda: events.seen["connect"] >= 2, step=lambda: consumer.poll(timeout_ms=20))
        _send(clients, b"x")
        assert [each.value for each in poll_count(1, consumer)] == [b"x"]


def test_silence_ends_the_connection(clients: ClientKind, transport: WakingTransport, events: FakeAppSync) -> None:
    events.timeout_ms = 1_000
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        until(lambda: events.seen["connect"] >= 2, step=lambda: consumer.poll(timeout_ms=20))


def test_close_says_goodbye(clients: ClientKind, transport: WakingTransport, events: FakeAppSync) -> None:
    before = threading.enumerate()
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
    until(lambda: events.closes == [1_000], shown=lambda: events.closes)
    begun = {each.name for each in threading.enumerate() if each not in before}
    assert not begun & {"penstock-wake-up", "penstock-fetcher-0"}


def test_stop_ends_a_wait_at_once(clients: ClientKind, transport: WakingTransport) -> None:
    with clients.consumer("orders") as consumer:
        _asleep(transport, consumer)
        stopper = threading.Timer(0.1, consumer.stop)
        stopper.start()
        began_ms = monotonic_ms()
        assert consumer.poll(timeout_ms=40_000) == []
        assert monotonic_ms() - began_ms < 20_000
        stopper.join()


def test_polling_consumer_opens_no_connection(
    clients: ClientKind, transport: WakingTransport, events: FakeAppSync
) -> None:
    with clients.consumer("orders", wait="poll", fetch_wait_ms=10) as consumer:
        until(lambda: len(transport.fetches) > 3, step=lambda: consumer.poll(timeout_ms=20))
        assert {each["wait_ms"] for each in transport.fetches} == {10}
    assert (transport.asked, events.seen["handshake"]) == (0, 0)
