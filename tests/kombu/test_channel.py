import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from kombu import Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError, OperationalError

from penstock import InvalidError, UnknownTopicError
from penstock.errors import ConnectionFailedError, RecordTooLargeError
from penstock.testing import MemoryPenstock
from tests.kombu.conftest import Connect
from tests.support.deadlines import until

QUEUE = Queue("tasks")


class Taker:
    """Consumes a queue of a connection, and keeps the messages unacknowledged."""

    def __init__(self, connection: Any, queue: Queue = QUEUE, *, no_ack: bool = False, prefetch: int = 0) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(connection, [queue], on_message=self.messages.append, accept=["json"], no_ack=no_ack)
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def until(self, count: int) -> list[Any]:
        until(lambda: len(self.messages) >= count, step=self.drain)
        return self.messages

    def drain(self) -> None:
        try:
            self.connection.drain_events(timeout=0.05)
        except TimeoutError:
            return


def _publish(connection: Any, *bodies: object, **options: Any) -> None:
    producer = Producer(connection)
    for body in bodies:
        producer.publish(body, **{"routing_key": "tasks", "declare": [QUEUE], "serializer": "json", **options})


def _counts(service: MemoryPenstock, queue: str = "tasks") -> tuple[int, int, int]:
    """Locked, available or waiting, and unfinished records."""
    found = service.admin().describe_share_group(queue).partitions
    return (
        sum(each.in_flight for each in found),
        sum(each.available + each.waiting for each in found),
        sum(each.lag for each in found),
    )


def test_declared_queue_is_a_topic_with_a_group_and_dead_letters(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect(partitions=3, queue_name_prefix="shop-")
    _publish(connection, "a")
    assert connection.default_channel.queue_declare("tasks", passive=True).message_count == 1
    admin = service.admin()
    assert {each.name: each.partitions for each in admin.list_topics()} == {"shop-tasks": 3, "shop-tasks.dead": 1}
    group = admin.describe_share_group("shop-tasks").group
    assert (group.topics, group.config["dead_letter_topic"]) == (("shop-tasks",), "shop-tasks.dead")


def test_declared_queue_that_exists_stays_as_it_is(service: MemoryPenstock, connect: Connect) -> None:
    service.create_topic("tasks")
    service.create_share_group("tasks", "tasks", {"lock_ms": 5_000})
    connect().default_channel.queue_declare("tasks")
    assert service.admin().describe_share_group("tasks").group.config["lock_ms"] == 5_000
    assert [each.name for each in service.admin().list_topics()] == ["tasks"]


def test_topic_of_another_program_is_no_queue(service: MemoryPenstock, connect: Connect) -> None:
    """Its records would become dead letters of the queue."""
    service.create_topic("tasks")
    for _ in range(2):
        with pytest.raises(ChannelError, match=r"topics create tasks.dead`.*share-groups create tasks tasks --dead-l"):
            connect().default_channel.queue_declare("tasks")
    service.create_topic("tasks.dead")
    service.producer().send("tasks", b"of another program").result()
    with pytest.raises(ChannelError, match="topic 'tasks' was there before the queue"):
        connect().default_channel.queue_declare("tasks")
    assert service.admin().list_share_groups() == []


def test_queue_whose_declaration_was_cut_off_is_finished(service: MemoryPenstock, connect: Connect) -> None:
    service.create_topic("tasks.dead")
    service.create_topic("tasks")
    connect().default_channel.queue_declare("tasks")
    assert service.admin().describe_share_group("tasks").group.config["dead_letter_topic"] == "tasks.dead"


def test_queue_that_another_program_makes_meanwhile_is_that_one(service: MemoryPenstock, connect: Connect) -> None:
    """The first look for the group comes before the other program has made it, and the rest comes after."""
    is_first = True

    class Behind:
        def call(self, method: str, path: str, *rest: Any) -> Any:
            nonlocal is_first
            answer = service.transport.call(method, path, *rest)
            if is_first:
                is_first = False
                _publish(connect(), "a")
            return answer

        def close(self) -> None:
            service.transport.close()

    assert connect(transport=Behind()).default_channel.queue_declare("tasks").message_count == 0
    assert len(service.records("tasks")) == 1


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_declared_queue_has_a_topic_again_after_its_topic_was_deleted(
    service: MemoryPenstock, connect: Connect, *, is_made_anew: bool
) -> None:
    connect(partitions=3).default_channel.queue_declare("tasks")
    admin = service.admin()
    admin.alter_share_group("tasks", {"lock_ms": 5_000})
    admin.delete_topic("tasks")
    if is_made_anew:
        admin.create_topic("tasks", 3)
    connection = connect(partitions=3)
    _publish(connection, "a")
    assert [each.decode() for each in Taker(connection).until(1)] == ["a"]
    assert admin.describe_topic("tasks").topic.partitions == 3
    assert admin.describe_share_group("tasks").group.config["lock_ms"] == 5_000


def test_queue_is_not_made_when_the_option_says_so(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect(create_queues=False)
    with pytest.raises(UnknownTopicError, match="tasks"):
        _publish(connection, "a")
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        connection.default_channel.queue_declare("tasks", passive=True)
    assert service.admin().list_topics() == []


def test_message_comes_with_its_body_and_headers_and_is_finished_when_acknowledged(
    service: MemoryPenstock, connect: Connect
) -> None:
    connection = connect()
    _publish(connection, {"amount": 7}, headers={"task": "pay"}, correlation_id="c1")
    [message] = Taker(connection).until(1)
    assert message.decode() == {"amount": 7}
    assert (message.headers, message.properties["correlation_id"]) == ({"task": "pay"}, "c1")
    assert message.delivery_info == {"exchange": "", "routing_key": "tasks", "redelivered": False}
    assert _counts(service) == (1, 0, 1)
    message.ack()
    until(lambda: _counts(service) == (0, 0, 0))
    with pytest.raises(ChannelError, match="delivery tag 1 is not in hand"):
        connection.default_channel.basic_ack(1)


def test_rejected_message_is_a_dead_letter_and_a_requeued_one_comes_again(
    service: MemoryPenstock, connect: Connect
) -> None:
    connection = connect()
    connection.default_channel.queue_declare("tasks")
    service.admin().alter_share_group("tasks", {"retry_backoff_ms_min": 1, "retry_backoff_ms_max": 1})
    _publish(connection, "again", "never")
    taker = Taker(connection)
    for message in taker.until(2):
        message.reject(requeue=message.decode() == "again")
    again = taker.until(3)[2]
    assert (again.decode(), again.delivery_info["redelivered"]) == ("again", True)
    again.ack()
    until(lambda: _counts(service) == (0, 0, 0))
    [letter] = service.records("tasks.dead")
    assert letter.value == b'"never"'


def test_record_of_another_program_is_a_dead_letter(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect()
    connection.default_channel.queue_declare("tasks")
    service.producer().send("tasks", b"plain").result()
    _publish(connection, "mine")
    taker = Taker(connection)
    assert [each.decode() for each in taker.until(1)] == ["mine"]
    until(lambda: len(service.records("tasks.dead")) == 1, step=taker.drain)
    headers = dict(service.records("tasks.dead")[0].headers)
    assert b"the record has no header `kombu`" in headers.values()


def test_channel_holds_as_many_messages_as_its_prefetch_count(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect()
    _publish(connection, *range(6))
    taker = Taker(connection, prefetch=2)
    first, _ = taker.until(2)
    taker.drain()
    assert len(taker.messages) == 2
    assert _counts(service)[0] <= 5, "two in hand, and three that the consumer has acquired ahead"
    first.ack()
    assert len(taker.until(3)) == 3
    taker.consumer.qos(prefetch_count=5)
    assert len(taker.until(6)) == 6


def test_message_without_acknowledgement_is_finished_when_it_is_delivered(
    service: MemoryPenstock, connect: Connect
) -> None:
    connection = connect()
    _publish(connection, "a")
    Taker(connection, no_ack=True).until(1)
    until(lambda: _counts(service) == (0, 0, 0))


def test_cancelled_consumer_may_acknowledge_and_a_closed_channel_gives_back_uncounted(
    service: MemoryPenstock, connect: Connect
) -> None:
    connection = connect()
    _publish(connection, "a", "b", "c")
    taker = Taker(connection, prefetch=2)
    one, other = taker.until(2)
    taker.consumer.cancel()
    one.ack()
    connection.default_channel.close()
    until(lambda: _counts(service) == (0, 2, 2))
    with pytest.raises(connection.connection_errors, match="given back"):
        other.ack()
    found = Taker(connect()).until(2)
    assert sorted(each.decode() for each in found) == sorted({"a", "b", "c"} - {one.decode()})
    assert [each.delivery_info["redelivered"] for each in found] == [False, False]


def test_recovered_messages_come_again(connect: Connect) -> None:
    connection = connect()
    _publish(connection, "a", "b")
    taker = Taker(connection)
    taker.until(2)
    taker.consumer.recover(requeue=True)
    assert sorted(each.decode() for each in taker.until(4)) == ["a", "a", "b", "b"]


def test_message_with_an_eta_waits_in_the_service(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect()
    app = _celery(service)
    app.send_task("t", countdown=0.5)
    due_ms = time.time() * 1_000 + 400
    assert len(service.admin().list_scheduled("celery")) == 1
    [message] = Taker(connection, Queue("celery")).until(1)
    assert time.time() * 1_000 > due_ms
    assert message.headers["eta"] is None
    assert message.headers["due"]
    app.send_task("t", eta=None, countdown=-1)
    assert service.admin().list_scheduled("celery") == [], "a time that is over delays nothing"


def test_task_that_expires_is_sent_and_its_worker_knows_until_when(service: MemoryPenstock, connect: Connect) -> None:

    def nothing() -> None:
        """It is never run."""

    task: Any = _celery(service).task(name="t")(nothing)
    task.apply_async(expires=60)
    task.apply_async(expires=datetime.now(UTC) + timedelta(seconds=60))
    for message in Taker(connect(), Queue("celery")).until(2):
        assert 50 < (datetime.fromisoformat(message.headers["expires"]) - datetime.now(UTC)).total_seconds() <= 60
        assert "expiration" not in message.properties
    with pytest.raises(NotImplementedError, match="Celery's `expires` with task_protocol=2"):
        task.apply_async(expiration=60)


def test_eta_beyond_a_year_is_refused(service: MemoryPenstock) -> None:
    with pytest.raises(InvalidError, match="deliver_at_ms"):
        _celery(service).send_task("t", countdown=366 * 86_400)


def test_purge_passes_over_what_waits(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect()
    _publish(connection, "a", "b")
    assert connection.default_channel.queue_purge("tasks") == 2
    assert _counts(service) == (0, 0, 0)
    _publish(connection, "c")
    assert [each.decode() for each in Taker(connection).until(1)] == ["c"]


def test_direct_exchange_routes_by_the_bindings_of_the_connection(service: MemoryPenstock, connect: Connect) -> None:
    connection = connect()
    exchange = Exchange("shop", type="direct")
    queues = [Queue(name, exchange, routing_key="paid") for name in ("mail", "books")]
    _publish(connection, "a", exchange=exchange, routing_key="paid", declare=queues)
    assert [len(service.records(each.name)) for each in queues] == [1, 1]
    queues[1](connection.default_channel).unbind_from(exchange, "paid")
    _publish(connection, "b", exchange=exchange, routing_key="paid", declare=[])
    assert [len(service.records(each.name)) for each in queues] == [2, 1]
    with pytest.raises(OperationalError, match="no queue is bound to exchange 'shop' by 'lost' in this program"):
        _publish(connection, "c", exchange=exchange, routing_key="lost", declare=[])


def test_message_that_no_service_answers_is_an_operational_error(connect: Connect) -> None:
    class Silent:
        def call(self, *arguments: object, **options: object) -> None:
            raise ConnectionFailedError("no answer", maybe_applied=True)

        def close(self) -> None:
            """There is nothing to close."""

    connection = connect(transport=Silent(), create_queues=False, delivery_timeout_ms=50)
    with pytest.raises(OperationalError, match="the message may not be stored"):
        _publish(connection, "a")


def test_message_that_is_too_large_is_refused_as_such(service: MemoryPenstock, connect: Connect) -> None:
    service.create_topic("tasks", config={"max_batch_bytes": 65_536})
    service.create_share_group("tasks", "tasks")
    with pytest.raises(RecordTooLargeError):
        _publish(connect(), "a" * 65_536)


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        (Queue("q", max_priority=9), "priority=9.*a queue of their own"),
        (Queue("q", queue_arguments={"x-max-priority": 5}), "priority=5"),
        (Queue("q", expires=60.0), "expires=60.0 asks for a temporary queue.*rpc://"),
        (Queue("q", message_ttl=60.0), "message_ttl=60.0.*retention_ms"),
        (Queue("q", exclusive=True), "'q' .exclusive. asks for a temporary queue"),
        (Queue("q", auto_delete=True), "'q' .auto_delete. asks for a temporary queue"),
        (Queue("", durable=True), "a queue without a name"),
        (Queue("q", Exchange("x", type="fanout")), "exchange 'x' is of type 'fanout'.*direct exchanges only"),
        (Queue("q", Exchange("x", type="headers")), "exchange 'x' is of type 'headers'"),
        (Queue("q", Exchange("x", type="topic"), routing_key="a.*"), "exchange 'x' is of type 'topic'"),
    ],
    ids=lambda value: None if isinstance(value, str) else "queue",
)
def test_queue_that_penstock_has_not_is_refused_with_what_to_do(connect: Connect, queue: Queue, says: str) -> None:
    with pytest.raises(NotImplementedError, match=says):
        queue(connect().default_channel).declare()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"priority": 5}, "priority=5: a queue of Penstock has no priorities"), ({"expiration": 3}, "Celery's `expires`")],
)
def test_property_that_penstock_has_not_is_refused(connect: Connect, options: dict[str, Any], says: str) -> None:
    with pytest.raises(NotImplementedError, match=says):
        _publish(connect(), "a", **options)


def test_get_and_delete_of_a_queue_are_refused(connect: Connect) -> None:
    channel = connect().default_channel
    with pytest.raises(NotImplementedError, match="consume it instead"):
        channel.basic_get("tasks")
    with pytest.raises(NotImplementedError, match="penstock topics delete tasks"):
        channel.queue_delete("tasks")


def _celery(service: MemoryPenstock, **settings: Any) -> Celery:
    app = Celery("tests", broker="penstock://", **settings)
    app.conf.broker_transport_options = {"transport": service.transport}
    return app


def test_results_by_rpc_are_refused_when_a_task_is_sent(service: MemoryPenstock) -> None:
    with pytest.raises(NotImplementedError, match=r"temporary queue.*rpc:// is no result backend here"):
        _celery(service, backend="rpc://").send_task("t")


@pytest.mark.parametrize("command", ["ping", "revoke"])
def test_remote_control_is_refused(service: MemoryPenstock, command: str) -> None:
    control = _celery(service).control
    with pytest.raises(NotImplementedError, match=r"need another broker|remote control"):
        control.ping() if command == "ping" else control.revoke("t1")


def test_events_go_nowhere_and_those_of_tasks_are_told_once(
    service: MemoryPenstock, caplog: pytest.LogCaptureFixture
) -> None:
    with _celery(service).connection_for_write() as connection:
        app = _celery(service)
        with app.events.Dispatcher(connection) as dispatcher:
            dispatcher.send("worker-heartbeat")
            assert caplog.messages == []
            for _ in range(2):
                dispatcher.send("task-received", uuid="t1")
    assert [each for each in caplog.messages if "-E" in each] == [
        "task events go nowhere: Penstock carries none, so start workers without -E"
    ]
    assert service.admin().list_topics() == []


def test_message_behind_another_topic_exchange_is_refused_rather_than_dropped(connect: Connect) -> None:
    exchange = Exchange("x", type="topic")
    with pytest.raises(NotImplementedError, match=r"'x' is of type 'topic'.*name a queue in task_routes"):
        _publish(connect(), "a", exchange=exchange, routing_key="a.b", declare=[exchange])
    with pytest.raises(OperationalError, match="no queue is bound to exchange 'x'"):
        _publish(connect(), "a", exchange="x", routing_key="a.b", declare=[])
    with pytest.raises(OperationalError, match="no queue is bound to exchange 'celeryev'"):
        _publish(connect(), "a", exchange="celeryev", routing_key="a.b", declare=[], headers={"task": "t"})


def test_task_of_the_first_protocol_behind_a_topic_exchange_is_refused(service: MemoryPenstock) -> None:
    app = _celery(service, task_protocol=1)
    with pytest.raises(NotImplementedError, match="exchange 'x' is of type 'topic'"):
        app.send_task("t", exchange="x", routing_key="a.b", declare=[Exchange("x", type="topic")])
