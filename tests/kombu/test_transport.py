import threading
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue

import penstock_kombu
from penstock.errors import InvalidError, NotFoundError
from penstock.testing import MemoryPenstock
from penstock_core.version import VERSION
from penstock_kombu.session import TransportOptions
from tests.kombu.conftest import Connect
from tests.kombu.test_channel import Taker
from tests.support.deadlines import DEADLINE_S, until
from tests.support.fake_app_sync import FakeAppSync
from tests.support.waking_transport import KEYS, WakingTransport

_PARTITIONS = TransportOptions().partitions


@pytest.mark.parametrize("url", ["penstock://", "penstock+https://host/prod"])
def test_url_names_the_transport(url: str) -> None:
    with Connection(url) as connection:
        assert isinstance(connection.transport, penstock_kombu.Transport)
        assert connection.transport.driver_version() == VERSION
        assert connection.as_uri().rstrip("/") == url.rstrip("/")
        assert not connection.supports_exchange_type("fanout")


@pytest.mark.parametrize(
    ("url", "options"), [("penstock://host", {}), ("penstock://", {"visibility_timeout": 1})], ids=["url", "option"]
)
def test_connection_is_refused_for_a_bad_url_or_option(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        Connection(url, transport_options=options).connect()


def test_wait_ends_after_its_time_and_calls_nothing(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0)
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.01)


def test_wait_ends_when_a_message_comes(connect: Connect) -> None:
    connection, queue = connect(), Queue("tasks")
    found: list[Any] = []
    with Consumer(connection, [queue], on_message=found.append, no_ack=True):
        thread = threading.Thread(target=connection.drain_events, kwargs={"timeout": DEADLINE_S})
        thread.start()
        with connect().Producer() as producer:
            producer.publish("a", routing_key="tasks", serializer="json")
        thread.join()
    assert len(found) == 1


def test_wait_without_a_message_returns_soon_while_one_is_unacknowledged(connect: Connect) -> None:
    """Celery sends the acknowledgements of other threads between two waits."""
    connection = connect()
    taker = Taker(connection, Queue("tasks"), prefetch=1)
    with connection.Producer() as producer:
        producer.publish("a", routing_key="tasks", serializer="json")
    [message] = taker.until(1)
    connection.drain_events(timeout=DEADLINE_S)
    message.ack()
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.05)


def test_channel_without_room_acquires_once_more_at_most(service: MemoryPenstock, connect: Connect) -> None:
    calls: list[str] = []

    class Counted:
        def call(self, method: str, path: str, *rest: Any) -> Any:
            calls.append(path)
            return service.transport.call(method, path, *rest)

        def close(self) -> None:
            service.transport.close()

    connection = connect(transport=Counted())
    taker = Taker(connection, Queue("tasks"), prefetch=1)
    with connect().Producer() as producer:
        for body in "abc":
            producer.publish(body, routing_key="tasks", serializer="json")
    taker.until(1)
    acquires = _acquires(calls)
    for _ in range(10):
        taker.drain()
    assert _acquires(calls) <= acquires + 1
    taker.messages[0].ack()
    assert len(taker.until(2)) == 2


def test_idle_consumer_sends_no_request_until_a_wake_up(service: MemoryPenstock, connect: Connect) -> None:
    with FakeAppSync(KEYS) as events:
        waking = WakingTransport(service.transport, events)
        connection = connect(transport=waking)
        taker = Taker(connection, Queue("tasks"))
        until(lambda: waking.armed() == _PARTITIONS)
        asked = len(waking.fetches)
        for _ in range(20):
            taker.drain()
        assert len(waking.fetches) == asked
        with connect(transport=waking).Producer() as producer:
            producer.publish("a", routing_key="tasks", serializer="json")
        assert [each.decode() for each in taker.until(1)] == ["a"]
        connection.release()


def _acquires(calls: list[str]) -> int:
    return sum(path.endswith("/acquire") for path in calls)


def test_error_of_a_queue_is_raised_by_the_wait(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect(create_queues=False)
    taker = Taker(connection, Queue("tasks"))
    with pytest.raises(NotFoundError, match="tasks"):
        until(lambda: False, step=taker.drain)


@pytest.mark.parametrize("timeout", [None, DEADLINE_S])
def test_wait_raises_when_another_thread_closes_the_connection(connect: Connect, timeout: float | None) -> None:
    connection, errors = connect(), list[BaseException]()
    Taker(connection, Queue("tasks"))

    def wait() -> None:
        try:
            connection.drain_events(timeout=timeout)
        except BaseException as error:  # the test looks at it
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    transport = connection.transport
    thread.start()
    until(lambda: transport._changed._waiters)  # it waits
    connection.release()
    thread.join(DEADLINE_S)
    assert len(errors) == 1
    assert isinstance(errors[0], transport.connection_errors)
    with pytest.raises(transport.connection_errors, match="the connection is closed"):
        transport.drain_events(None)


def test_connection_opens_again_after_it_was_closed(connect: Connect) -> None:
    connection = connect()
    with connection.Producer() as producer:
        producer.publish("a", routing_key="tasks", declare=[Queue("tasks")], serializer="json")
    connection.release()
    again = connection.clone()
    assert [each.decode() for each in Taker(again, Queue("tasks")).until(1)] == ["a"]
    again.release()
