"""subscribe and unsubscribe: what a consumer reads changes while it runs, alone or as a member of its group."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AsyncConsumer, ClosedError, Consumer, ConsumerRebalanceListener, InvalidError, LeaseHeldError
from penstock.consumer.consumer_core import ConsumerCore
from penstock.consumer.settings import ConsumerSettings
from penstock.http.client import Client
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import drive
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.sdk.group.group_fixtures import BEAT, lease_epochs, until_heard
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.sdk.polling import poll_count, poll_until
from tests.support.deadlines import DEADLINE_S

ALONE: dict[str, Any] = {"fetch_wait_ms": 10}
FAST: dict[str, Any] = ALONE | {"group_id": "g", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 250}
LAZY = FAST | {"auto_commit_interval_ms": 600_000}  # no commit falls due by itself


@pytest.fixture
def topics(service: MemoryPenstock) -> list[str]:
    names = ["orders", "bills"]
    for name in names:
        service.create_topic(name, partitions=2)
        _send(service, name, 5)
    return names


def _send(service: MemoryPenstock, topic: str, count: int) -> None:
    with service.producer() as producer:
        for number in range(2 * count):
            producer.send(topic, b"%d" % number, partition=number % 2)


def _of(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in sorted(topics) for number in range(2)]


def _holds(consumer: Any, *topics: str) -> Callable[[object], bool]:
    return lambda _: consumer.assignment() == _of(*topics)


def _committed(service: MemoryPenstock) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in service.admin().group_offsets("g"):
        found.setdefault(each.topic, []).append(each.offset)
    return found


class RecordingListener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))


def test_subscribe_without_group_reads_all_partitions_and_then_those_of_other_topics(
    clients: ClientKind, topics: list[str]
) -> None:
    with clients.consumer(**ALONE) as consumer:
        consumer.subscribe("orders")
        assert {each.topic for each in poll_count(10, consumer)} == {"orders"}
        consumer.subscribe(["bills"])
        assert (consumer.assignment(), consumer.subscription()) == (_of("bills"), ["bills"])
        assert {each.topic for each in poll_count(10, consumer)} == {"bills"}


def test_subscribe_without_group_keeps_the_place_in_topics_that_stay(clients: ClientKind, topics: list[str]) -> None:
    with clients.consumer("orders", **ALONE) as consumer:
        poll_count(10, consumer)
        consumer.subscribe(topics)
        records = poll_count(10, consumer)
        assert {each.topic for each in records} == {"bills"}
        assert [consumer.position(each) for each in _of("orders", "bills")] == [5, 5, 5, 5]


def test_subscribe_without_group_starts_in_a_new_topic_by_auto_offset_reset(
    clients: ClientKind, topics: list[str]
) -> None:
    with clients.consumer("orders", **ALONE, auto_offset_reset="latest") as consumer:
        consumer.poll(timeout_ms=0)
        consumer.subscribe(topics)
        assert [consumer.position(each) for each in _of(*topics)] == [5, 5, 5, 5]


def test_iteration_returns_no_record_of_a_topic_after_its_subscription_ended(
    clients: ClientKind, topics: list[str]
) -> None:
    for settings in (ALONE, FAST):
        with clients.consumer("orders", **settings) as consumer:
            assert next(consumer).topic == "orders"
            consumer.subscribe(["bills"])
            assert [next(consumer).topic for _ in range(10)] == ["bills"] * 10


def test_member_that_subscribes_to_another_topic_commits_tells_and_releases_the_old_one(
    clients: ClientKind, service: MemoryPenstock, topics: list[str]
) -> None:
    listener = RecordingListener()
    with clients.consumer(**LAZY) as consumer, clients.consumer(**FAST) as other:
        consumer.subscribe(["orders"], listener=listener)
        poll_count(10, consumer)
        consumer.subscribe(["bills"])
        assert set(_committed(service).get("orders", [])) <= {0}  # the last poll may not be dealt with yet
        assert consumer.assignment() == _of("orders")
        records = poll_count(10, consumer)
        assert {each.topic for each in records} == {"bills"}
        assert _committed(service)["orders"] == [5, 5]
        assert ("revoked", _of("orders")) in listener.calls
        assert consumer.assignment() == _of("bills")
        other.subscribe(["orders"])
        assert poll_until(_holds(other, "orders"), other, consumer) == []  # from where the first has committed
        [group] = [each for each in service.admin().describe_group("g").members if each.topics == ("bills",)]
        assert group.session_ends_at_ms  # the same member, under its new subscription


def test_member_keeps_the_leases_of_topics_that_stay(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, topics: list[str]
) -> None:
    listener = RecordingListener()
    with clients.consumer(transport=faulty, **FAST) as consumer:
        consumer.subscribe(["orders"], listener)
        poll_until(_holds(consumer, "orders"), consumer)
        epochs = lease_epochs(service, "orders")
        consumer.subscribe(topics)
        poll_until(_holds(consumer, *topics), consumer)
        consumer.subscribe("ord*")
        poll_until(_holds(consumer, "orders"), consumer)
        until_heard(faulty)
        assert lease_epochs(service, "orders") == epochs
        changes = {(name, each.topic) for name, partitions in listener.calls for each in partitions}
        assert changes == {("assigned", "orders"), ("assigned", "bills"), ("revoked", "bills")}


def test_topic_that_is_subscribed_to_again_before_the_next_poll_is_not_released(
    clients: ClientKind, faulty: FaultyTransport, topics: list[str]
) -> None:
    listener = RecordingListener()
    with clients.consumer(transport=faulty, **FAST) as consumer:
        consumer.subscribe("orders", listener)
        poll_until(_holds(consumer, "orders"), consumer)
        consumer.subscribe("bills")
        consumer.subscribe("orders")
        beats = faulty.count(BEAT)
        poll_until(lambda _: faulty.count(BEAT) >= beats + 3, consumer)
        assert [name for name, _ in listener.calls if name != "assigned"] == []
        assert consumer.assignment() == _of("orders")


def test_unsubscribe_commits_tells_and_leaves_the_group_at_once(
    clients: ClientKind, service: MemoryPenstock, topics: list[str]
) -> None:
    listener = RecordingListener()
    with clients.consumer(**LAZY) as consumer:
        consumer.subscribe(topics, listener)
        poll_count(20, consumer)
        consumer.unsubscribe()
        assert _committed(service) == {"orders": [5, 5], "bills": [5, 5]}
        assert sorted(each for name, gone in listener.calls if name == "revoked" for each in gone) == _of(*topics)
        assert (consumer.assignment(), consumer.subscription()) == ([], [])
        assert service.admin().describe_group("g").members == ()
        assert consumer.poll(timeout_ms=0) == []
        assert service.admin().describe_group("g").members == ()
        consumer.subscribe("orders")
        assert poll_until(_holds(consumer, "orders"), consumer) == []
        _send(service, "orders", 1)
        assert sorted(each.offset for each in poll_count(2, consumer)) == [5, 5]


@pytest.mark.parametrize("delivery", ["at_most_once", "exactly_once"])
def test_unsubscribe_leaves_commits_to_delivery(
    clients: ClientKind, service: MemoryPenstock, topics: list[str], delivery: str
) -> None:
    with clients.consumer("orders", **FAST, delivery=delivery) as consumer:
        poll_count(10, consumer)
        before = _committed(service)
        assert before == ({"orders": [5, 5]} if delivery == "at_most_once" else before)
        consumer.unsubscribe()
        assert _committed(service) == before


def test_unsubscribed_consumer_may_be_assigned_partitions_and_the_other_way_round(
    clients: ClientKind, service: MemoryPenstock, topics: list[str]
) -> None:
    with clients.consumer("orders", **FAST, enable_auto_commit=False) as consumer:
        poll_until(_holds(consumer, "orders"), consumer)
        with pytest.raises(InvalidError, match="unsubscribe"):
            consumer.assign(_of("bills"))
        consumer.unsubscribe()
        consumer.assign(_of("bills"))
        consumer.commit({_of("bills")[0]: 3})  # as anybody may, without a lease
        assert _committed(service)["bills"] == [3]
        with pytest.raises(InvalidError, match="unsubscribe"):
            consumer.subscribe("orders")
        consumer.unsubscribe()
        consumer.subscribe("bills")
        poll_until(_holds(consumer, "bills"), consumer)
        assert [consumer.position(each) for each in _of("bills")] != [0, 0]
        with clients.consumer(group_id="g") as simple, pytest.raises(LeaseHeldError):
            simple.commit({_of("bills")[0]: 4})


@pytest.mark.parametrize(
    ("topics", "listener", "group_id", "says"),
    [
        ([], None, "g", "unsubscribe() reads none"),
        ("", None, "g", "''"),
        ("a b", None, None, "'a b'"),
        (5, None, "g", "topics=5"),
        (None, None, None, "topics=None"),
        ([5], None, "g", "topic 5: give each topic as a string of its own"),
        ("ord*", None, None, "only groups take patterns"),
        (["a" * 300 + "*"], None, "g", "pattern"),
        ("orders", print, "g", "ConsumerRebalanceListener"),
        ("orders", RecordingListener(), None, "give a group_id"),
    ],
)
def test_bad_subscription_is_refused_and_changes_nothing(
    clients: ClientKind, topics: Any, listener: Any, group_id: str | None, says: str
) -> None:
    with clients.consumer("orders", group_id=group_id) as consumer:
        with pytest.raises(InvalidError) as caught:
            consumer.subscribe(topics, listener)
        assert says in str(caught.value)
        assert consumer.subscription() == ["orders"]


def test_closed_consumer_can_not_be_subscribed(clients: ClientKind, topics: list[str]) -> None:
    with clients.consumer("orders", **FAST) as consumer:
        pass
    with pytest.raises(ClosedError):
        consumer.subscribe("bills")
    with pytest.raises(ClosedError):
        consumer.unsubscribe()


def test_callbacks_may_read_positions_while_the_consumer_is_closed(service: MemoryPenstock, topics: list[str]) -> None:
    consumer: Consumer
    seen: list[Any] = []

    def revoked(partitions: list[TopicPartition]) -> None:
        seen.append(([consumer.position(each) for each in partitions], consumer.assignment(), consumer.paused()))
        seen.append(consumer.committed(partitions[0]))
        with pytest.raises(ClosedError):
            consumer.poll(timeout_ms=0)
        with pytest.raises(ClosedError):
            next(consumer)

    with service.consumer("orders", **FAST, on_revoked=revoked) as consumer:
        poll_count(10, consumer)
    assert seen == [([5, 5], _of("orders"), []), 5]
    with pytest.raises(ClosedError):
        consumer.position(_of("orders")[0])


def test_async_callbacks_may_read_positions_while_the_consumer_is_closed(
    service: MemoryPenstock, topics: list[str]
) -> None:
    consumer: AsyncConsumer
    seen: list[int] = []

    async def revoked(partitions: list[TopicPartition]) -> None:
        seen.extend([await consumer.position(each) for each in partitions])

    async def read() -> None:
        nonlocal consumer
        async with service.async_consumer("orders", **FAST, on_revoked=revoked) as consumer:
            count = 0
            while count < 10:
                count += len(await consumer.poll())

    asyncio.run(read())
    assert seen == [5, 5]


@pytest.mark.parametrize("settings", [ALONE, FAST], ids=["alone", "group"])
def test_waiting_iteration_reads_the_topic_that_another_task_subscribes_to(
    service: MemoryPenstock, topics: list[str], settings: dict[str, Any]
) -> None:
    service.create_topic("empty")

    async def read() -> ConsumerRecord:
        async with service.async_consumer("empty", **settings) as consumer:
            waiting = asyncio.create_task(anext(consumer))
            for _ in range(20):
                await asyncio.sleep(0)  # the task comes to its wait in fewer turns of the loop
            assert not waiting.done()
            consumer.subscribe("bills")
            return await asyncio.wait_for(waiting, DEADLINE_S)

    assert asyncio.run(read()).topic == "bills"


def test_poll_of_no_topic_says_what_to_do(service: MemoryPenstock) -> None:
    with service.consumer() as consumer:
        for read in (lambda: consumer.poll(timeout_ms=0), lambda: next(consumer)):
            with pytest.raises(InvalidError, match=r"reads no topic: give it topics, or subscribe\(\) or assign\(\)"):
                read()


def test_consumer_looks_for_the_topics_that_it_subscribed_to_during_the_look_for_others(
    service: MemoryPenstock, topics: list[str]
) -> None:
    client = Client(service.transport)
    core = ConsumerCore(ConsumerSettings(), member_id="m", process_name="p", now_ms=lambda: 1_000_000)
    core.subscribe(topics[:1])
    asked: list[HttpRequest] = []

    def answer(effect: object) -> Document:
        assert isinstance(effect, HttpRequest)
        asked.append(effect)
        if len(asked) == 1:
            core.subscribe(topics[1:])
        return client.document(effect)

    assert drive(core.assignment(), answer) == _of(topics[1])
    assert [each.query for each in asked] == [{"topic": topics[0]}, {"topic": topics[1]}]
