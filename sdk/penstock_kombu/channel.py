"""AMQP's verbs on topics and share groups.

| verb                          | here                                                                      |
|-------------------------------|---------------------------------------------------------------------------|
| publish                       | send and wait for the quorum; with an ETA, a delayed record               |
| consume, qos                  | a share consumer of the queue's group, `prefetch_count` records at most   |
| ack                           | accept                                                                    |
| reject                        | reject: the record goes to the dead letters                               |
| reject with requeue           | release: it comes again after the group's backoff                         |
| cancel                        | no more records come; those in hand stay locked                           |
| close                         | the records in hand go back, uncounted                                    |
| exchange, bind                | direct exchanges, known to the connection that declares them              |
| topic, fanout; temporary queue| refused, because each would cost calls while nothing happens              |
| publish to `celeryev`         | dropped: Celery's events are the only messages that go nowhere            |
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError, OperationalError
from kombu.exceptions import ConnectionError as AmqpConnectionError
from kombu.message import Message
from kombu.transport.base import StdChannel

from penstock import Admin, UnknownTopicError
from penstock.errors import NotFoundError, UnavailableError
from penstock.share.settings import RECORDS_MAX
from penstock.system import wall_clock_ms
from penstock_kombu.delivery import UNBOUNDED_RECORDS, Deliveries, InFlight, QueueReader
from penstock_kombu.message import NotAMessageError, from_record, to_record
from penstock_kombu.session import Session

_log = logging.getLogger("penstock.kombu")

_EVENTS = "celeryev"  # the exchange of Celery's events
_NO_FANOUT = (
    "exchange {0!r} is of type {1!r}: Penstock has direct exchanges only. Remote control (inspect, ping, revoke, "
    "broadcast), events and task queues behind topic exchanges need another broker; name a queue in task_routes instead"
)
_NO_TEMPORARY = (
    "{0} asks for a temporary queue: Penstock has none. So rpc:// is no result backend here, and remote control, "
    "flower and `celery events` do not work. Use a result backend of its own, such as redis:// or a database"
)
_NOT_A_QUEUE = (
    "PRECONDITION_FAILED - topic {0!r} was there before the queue, and a worker would dead-letter what other programs "
    "send to it. Use another queue name, or queue_name_prefix. If all its records are tasks, make the rest yourself: "
    "`penstock topics create {1}`, then `penstock share-groups create {0} {0} --dead-letters {1}`"
)
_NO_PRIORITY = (
    "priority={0!r}: a queue of Penstock has no priorities. Send urgent tasks to a queue of their own, with workers "
    "that consume it alone (task_routes, `celery worker -Q`)"
)


class Channel(StdChannel):  # type: ignore[misc]  # kombu has no types
    """A channel of a connection. One thread drains it; other threads may acknowledge."""

    def __init__(self, transport: Any, session: Session, changed: threading.Condition) -> None:
        self.connection: Any = transport  # Kombu reads it, and None means closed
        self.deliveries = Deliveries(changed)
        self._session = session
        self._readers: dict[str, QueueReader] = {}
        self._stopped: list[QueueReader] = []

    # Declarations.

    def exchange_declare(self, exchange: str = "", type: str = "direct", **_: object) -> None:  # noqa: A002 - AMQP's
        """A direct exchange. Celery's events may have their topic exchange, which leads nowhere."""
        if type != "direct" and (exchange, type) != (_EVENTS, "topic"):
            raise NotImplementedError(_NO_FANOUT.format(exchange, type))

    def prepare_queue_arguments(self, arguments: Mapping[str, Any] | None, **options: Any) -> Mapping[str, Any]:
        """Raises NotImplementedError for each argument: a queue's settings are those of its topic and group."""
        given = {**(arguments or {}), **{name: value for name, value in options.items() if value is not None}}
        for name, value in given.items():
            if name in ("x-max-priority", "max_priority"):
                raise NotImplementedError(_NO_PRIORITY.format(value))
            if name in ("x-expires", "expires"):
                raise NotImplementedError(_NO_TEMPORARY.format(f"{name}={value!r}"))
            raise NotImplementedError(
                f"queue argument {name}={value!r}: set it on the topic or the share group, such as retention_ms "
                "(`penstock topics alter`, `penstock share-groups alter`)"
            )
        return {}

    def queue_declare(
        self, queue: str = "", passive: bool = False, exclusive: bool = False, auto_delete: bool = False, **_: object
    ) -> Any:
        """Make topic, group and dead-letter topic, unless there are any. Tells how many messages wait.

        A group whose topic was deleted gets a new one, and a group whose topic was made anew gets that one. Raises
        ChannelError if the topic was there before the group: other programs may send to it.
        """
        if exclusive or auto_delete or not queue:
            what = "exclusive" if exclusive else "auto_delete" if auto_delete else "a queue without a name"
            raise NotImplementedError(_NO_TEMPORARY.format(f"queue {queue!r} ({what})"))
        options = self._session.options
        if not (passive or options.create_queues):
            return queue_declare_ok_t(queue, 0, 0)
        admin, name = self._session.admin(), options.topic(queue)
        try:
            found = admin.describe_share_group(name)
        except NotFoundError as error:
            if passive:
                raise ChannelError(f"NOT_FOUND - {error}", (50, 10), "Channel.queue_declare", "404") from error
            self._make_queue(admin, name)
            return queue_declare_ok_t(queue, 0, 0)
        is_bound = any(each.topic == name for each in found.partitions)
        if not (passive or is_bound) and name in found.group.topics:
            admin.create_topic(name, options.partitions, exist_ok=True)
            admin.create_share_group(name, found.group.topics)  # binds it to the topic that has the name now
        return queue_declare_ok_t(queue, sum(each.available + each.waiting for each in found.partitions), 0)

    def _make_queue(self, admin: Admin, name: str) -> None:
        """Make topic and group. The dead-letter topic comes first, so a topic without one is no queue of ours."""
        options = self._session.options
        letters = name + options.dead_letter_suffix
        if _has_topic(admin, name) and (not _has_topic(admin, letters) or any(admin.list_offsets(name).values())):
            try:
                admin.describe_share_group(name)  # another program has just made the queue
            except NotFoundError as error:
                why = _NOT_A_QUEUE.format(name, letters)
                raise ChannelError(why, (50, 10), "Channel.queue_declare", "406") from error
            return
        admin.create_topic(letters, 1, exist_ok=True)
        admin.create_topic(name, options.partitions, exist_ok=True)
        admin.create_share_group(name, name, {"start": "earliest", "dead_letter_topic": letters})

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **_: object) -> None:
        """Let messages to a direct exchange with this routing key go to the queue."""
        if exchange == _EVENTS:
            raise NotImplementedError(_NO_FANOUT.format(exchange, "topic"))
        self._session.bindings.setdefault((exchange, routing_key), {})[queue] = None

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", **_: object) -> None:
        """Take a binding back."""
        self._session.bindings.get((exchange, routing_key), {}).pop(queue, None)

    def queue_purge(self, queue: str, **_: object) -> int:
        """Pass over all messages that came by now, locked ones too. Returns how many they were. ETAs still come."""
        admin, name = self._session.admin(), self._session.options.topic(queue)
        lag = sum(each.lag for each in admin.describe_share_group(name).partitions)
        admin.reset_share_group(name, name, to="latest")
        return lag

    def queue_delete(self, queue: str, **_: object) -> None:
        """Raises NotImplementedError: records are not removed by a library's call."""
        name = self._session.options.topic(queue)
        raise NotImplementedError(
            f"queue {queue!r} is a topic: `penstock share-groups delete {name}` and `penstock topics delete {name}`"
        )

    # Messages out.

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The message as `basic_publish` takes it. Raises NotImplementedError for a priority and an expiration.

        Celery sets an expiration next to the header `expires`, which its worker checks: that one is left out.
        """
        told = dict(properties or {})
        if (headers or {}).get("expires") is not None:
            told.pop("expiration", None)
        if priority or told.get("priority"):
            raise NotImplementedError(_NO_PRIORITY.format(priority or told["priority"]))
        if told.get("expiration") is not None:
            raise NotImplementedError(
                f"expiration={told['expiration']!r}: use Celery's `expires` with task_protocol=2, which workers check"
            )
        return {
            "body": body,
            "content-type": content_type,
            "content-encoding": content_encoding,
            "headers": dict(headers or {}),
            "properties": told,
        }

    def basic_publish(self, message: Mapping[str, Any], exchange: str = "", routing_key: str = "", **_: object) -> None:
        """Store the message in the queue. It returns once a quorum of zones has the message.

        Raises OperationalError if the service does not answer, and then the message may be stored all the same; Kombu
        does not send it again. Other errors of the service come as they are.
        """
        if not exchange:
            queues = [routing_key]
        elif exchange == _EVENTS and "task" not in message["headers"]:
            self._session.drop_event(routing_key)
            return
        else:
            queues = list(self._session.bindings.get((exchange, routing_key), ()))
        if not queues:
            raise OperationalError(
                f"no queue is bound to exchange {exchange!r} by {routing_key!r} in this program: "
                "declare it in task_queues, or send to a queue by its name"
            )
        sent = to_record(message, exchange, routing_key)
        is_later = sent.deliver_at_ms is not None and sent.deliver_at_ms > wall_clock_ms()
        producer = self._session.producer()
        try:
            for queue in queues:
                producer.send(
                    self._session.options.topic(queue),
                    sent.value,
                    headers=sent.headers,
                    deliver_at_ms=sent.deliver_at_ms if is_later else None,
                ).result()
        except UnavailableError as error:
            raise OperationalError(f"the message may not be stored: {error}") from error

    # Messages in.

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Bound the messages that the channel holds, of all its queues; 0 for no bound."""
        with self.deliveries.changed:
            self.deliveries.prefetch_count = prefetch_count or 0
            self.deliveries.changed.notify_all()

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], object], consumer_tag: str, **_: object
    ) -> None:
        """Begin to fetch the queue's messages."""
        wanted = self.deliveries.prefetch_count or UNBOUNDED_RECORDS
        self._readers[consumer_tag] = QueueReader(
            queue,
            self._session.share_consumer(
                queue, max_records=min(wanted, RECORDS_MAX), on_lock_lost=self.deliveries.lose
            ),
            self.deliveries,
            callback,
            is_acknowledged=bool(no_ack),
        )

    def basic_cancel(self, consumer_tag: str, **_: object) -> None:
        """Fetch no more. Messages that were delivered may still be acknowledged."""
        reader = self._readers.pop(consumer_tag, None)
        if reader is not None and not self._session.is_forked:
            self._stopped.append(reader)
            reader.stop()

    def basic_get(self, queue: str, **_: object) -> None:
        """Raises NotImplementedError: a single look would lock records that it does not return."""
        raise NotImplementedError(f"get of queue {queue!r}: consume it instead (kombu.Consumer, drain_events)")

    def deliver(self, found: InFlight) -> None:
        """Give a message to its consumer. A record that is no message goes to the dead letters."""
        try:
            arguments = from_record(found.record, wall_clock_ms())
        except NotAMessageError as error:
            _log.warning("%s goes to the dead letters: %s", _place(found), error)
            self.deliveries.settle(found.tag)
            found.reader.reject(found.record, str(error))
            return
        if found.reader.is_acknowledged:
            self.basic_ack(found.tag)
        found.reader.callback(Message(channel=self, delivery_tag=found.tag, **arguments))

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Accept the message, with `multiple` all before it, too. A lost lock is logged: the message comes again."""
        for each in self._settled(delivery_tag, multiple=multiple):
            if not each.reader.accept(each.record):
                _log.warning("%s was done too late: its lock was lost, so it may run again", _place(each))

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Send the message to the dead letters, or with `requeue` let it come again after the group's backoff."""
        for each in self._settled(delivery_tag):
            if requeue:
                each.reader.release(each.record, is_counted=True)
            else:
                each.reader.reject(each.record, "rejected by the consumer")

    def basic_recover(self, requeue: bool = True) -> None:
        """Give back all messages that are not acknowledged, uncounted."""
        for each in self.deliveries.settle(0, multiple=True):
            each.reader.release(each.record, is_counted=False)

    def close(self) -> None:
        """Give back what is not acknowledged, uncounted, and send what is. In a child by fork() it does nothing."""
        if self.connection is None:
            return
        transport, self.connection = self.connection, None
        transport.close_channel(self)
        if self._session.is_forked:
            return
        for tag in list(self._readers):
            self.basic_cancel(tag)
        self.basic_recover()
        for reader in self._stopped:
            reader.close()

    def _settled(self, tag: int, *, multiple: bool = False) -> list[InFlight]:
        if self.connection is None:
            raise AmqpConnectionError("the channel is closed: its messages were given back")
        found = self.deliveries.settle(tag, multiple=multiple)
        if not found and not multiple:
            raise ChannelError(f"PRECONDITION_FAILED - delivery tag {tag} is not in hand", (60, 80), "basic_ack", "406")
        return found


def _has_topic(admin: Admin, name: str) -> bool:
    try:
        admin.describe_topic(name)
    except UnknownTopicError:
        return False
    return True


def _place(found: InFlight) -> str:
    record = found.record
    return f"offset {record.offset} of {record.topic}[{record.partition}]"
