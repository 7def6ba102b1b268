"""Penstock in memory, for the tests of programs that use it: the service's own code on in-memory storage.

Nothing is mocked. Requests are encoded, handled, stored and answered as in AWS, without network, files or account.

    import pytest
    from penstock.testing import MemoryPenstock

    @pytest.fixture
    def penstock():
        with MemoryPenstock() as service:
            service.create_topic("orders", partitions=3)
            yield service

    def test_order_is_announced(penstock):
        with penstock.producer() as producer:
            announce(producer, order)                       # the code under test
        records = penstock.records("orders")
        assert [record.value for record in records] == [b"..."]

`async_producer`, `async_consumer`, `async_share_consumer` and `async_admin` are the same for asyncio.

It needs the extra `penstock[testing]` (docs/adr/0002). No other module of the SDK imports the service.
"""

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from penstock.admin.admin import Admin
from penstock.admin.async_admin import AsyncAdmin
from penstock.consumer.async_consumer import AsyncConsumer
from penstock.consumer.consumer import Consumer
from penstock.http.http_message import Response
from penstock.http.threaded_transport import ThreadedTransport
from penstock.model import ConsumerRecord, Topic, TopicPartition
from penstock.model.share import ShareGroup
from penstock.producer.async_producer import AsyncProducer
from penstock.producer.producer import Producer
from penstock.share.async_share_consumer import AsyncShareConsumer
from penstock.share.share_consumer import ShareConsumer
from penstock_core.acls.rule import parse_principal_pattern
from penstock_core.acls.tokens import AclSettings
from penstock_core.log.inline import InlineBounds
from penstock_core.log.timer import DueSecond
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch
from penstock_core.push.targets.kafka_event import decode_answer, encode_kafka_event
from penstock_core.push.targets.target import FunctionTarget, Target

try:
    from penstock_handlers.router import LOCAL_PRINCIPAL, dispatch
    from penstock_service.adapters.memory.messages import MemoryDeliveryQueue
    from penstock_service.adapters.memory.service import memory_instance
    from penstock_service.instance.instance import Instance
    from penstock_service.push.look import deliver_due
    from penstock_service.timers.promote import promote_second
except ModuleNotFoundError as missing:
    hint = f"{missing}: penstock.testing needs `pip install 'penstock[testing]'`"
    raise ModuleNotFoundError(hint, name=missing.name) from missing

__all__ = ["MemoryPenstock", "MemoryTransport", "ThreadedTransport"]

_PUSH_ROUNDS_MAX = 100  # a copy to a topic may have subscriptions of its own


class MemoryTransport:
    """A Transport to a service in this process. It neither makes nor checks signatures.

    The caller is `principal_arn`, an IAM user or the session of a role.
    """

    def __init__(self, instance: Instance, principal_arn: str = LOCAL_PRINCIPAL) -> None:
        self._instance = instance
        self._principal_arn = principal_arn

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Let the service answer the request, in this thread."""
        return Response(*dispatch(method, path, query, headers, body, self._instance, self._principal_arn))

    def close(self) -> None:
        """Nothing to close."""
        pass


class _ThreadTriggers:
    """TimerTriggers on threads: one waits for each second in which delayed records are due."""

    def __init__(self) -> None:
        self.promote: Callable[[DueSecond], object] = lambda _: None
        self._lock = threading.Lock()
        self._waiting: set[threading.Timer] = set()
        self._is_closed = False

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        """Promote the second when it is over."""
        timer = threading.Timer(delay_ms / 1_000, lambda: self._run(timer, second))
        timer.daemon = True
        with self._lock:
            if self._is_closed:
                return
            self._waiting.add(timer)
        timer.start()

    def switch_on(self) -> None:
        """Nothing to switch on."""

    def run_at_once(self) -> None:
        """Nothing to start: each second has its thread."""

    def open_queue(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """End the threads that wait."""
        with self._lock:
            self._is_closed, waiting = True, list(self._waiting)
        for timer in waiting:
            timer.cancel()
        for timer in waiting:
            timer.join()

    def _run(self, timer: threading.Timer, second: DueSecond) -> None:
        try:
            self.promote(second)
        finally:
            with self._lock:
                self._waiting.discard(timer)


class _Functions:
    """Targets: Lambda functions of this process, by ARN. Every other target is away."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[dict[str, Any], None], Any]] = {}

    def check(self, target: Target) -> None:
        """Takes every target: you may add its function later."""

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:  # noqa: ARG002 - it is called here
        """Call the function with the event that Lambda would give it."""
        handler = self.handlers.get(target.arn) if isinstance(target, FunctionTarget) else None
        if handler is None:
            return Failed(failure=Failure.AWAY, error=f"{target} is no function of this test: see add_function")
        try:
            answer = handler(json.loads(encode_kafka_event(batch)), None)
        except Exception as error:  # the function's own, as Lambda would report it
            return Failed(failure=Failure.REFUSAL, error=f"{type(error).__name__}: {error}")
        return decode_answer(json.dumps(answer).encode(), batch, is_json=True)


class MemoryPenstock:
    """A service of its own, empty at first, and clients of it. Closing it closes the clients that have threads.

    Delayed records come while it is open, if their delay is 15 minutes at most. Subscriptions deliver when you call
    `deliver_pushes`. The principal of `transport` may do everything. With `denies_by_default`, others may only do what
    access rules allow: test yours with `transport_as`. Appends of up to `inline_bytes_max` bytes go where a stage with
    that setting puts them: records are the same, and you may see that your program does not care.
    """

    def __init__(self, *, denies_by_default: bool = False, inline_bytes_max: int = 0) -> None:
        settings = AclSettings(
            allows_by_default=not denies_by_default, super_principals=(parse_principal_pattern(LOCAL_PRINCIPAL),)
        )
        instance = memory_instance(acl_settings=settings, small=InlineBounds(swept_bytes=inline_bytes_max))
        self._triggers = _ThreadTriggers()
        self._functions = _Functions()
        self._queue = MemoryDeliveryQueue(instance.clock)
        stores = replace(
            instance.stores, timer_triggers=self._triggers, deliveries=self._queue, targets=self._functions
        )
        self._instance = replace(instance, stores=stores)
        self._triggers.promote = lambda second: promote_second(self._instance, second, math.inf)
        self.transport = MemoryTransport(self._instance)
        self._closers: list[Callable[[], None]] = []

    def transport_as(self, principal_arn: str) -> MemoryTransport:
        """A transport of another IAM user, or of a role's session, to test what belongs to a principal."""
        return MemoryTransport(self._instance, principal_arn)

    def producer(self, **settings: Any) -> Producer:
        """A Producer of this service; the settings are Producer's."""
        producer = Producer(transport=self.transport, **settings)
        self._closers.append(producer.close)
        return producer

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A Consumer of this service; the settings are Consumer's."""
        consumer = Consumer(*topics, transport=self.transport, **settings)
        self._closers.append(consumer.close)
        return consumer

    def share_consumer(self, *topics: str, **settings: Any) -> ShareConsumer:
        """A ShareConsumer of this service; the settings are ShareConsumer's."""
        consumer = ShareConsumer(*topics, transport=self.transport, **settings)
        self._closers.append(consumer.close)
        return consumer

    def async_producer(self, **settings: Any) -> AsyncProducer:
        """An AsyncProducer of this service. Use it in `async with`: this object does not close it."""
        return AsyncProducer(transport=ThreadedTransport(self.transport), **settings)

    def async_consumer(self, *topics: str, **settings: Any) -> AsyncConsumer:
        """An AsyncConsumer of this service. Use it in `async with`: this object does not close it."""
        return AsyncConsumer(*topics, transport=ThreadedTransport(self.transport), **settings)

    def async_share_consumer(self, *topics: str, **settings: Any) -> AsyncShareConsumer:
        """An AsyncShareConsumer of this service. Use it in `async with`: this object does not close it."""
        return AsyncShareConsumer(*topics, transport=ThreadedTransport(self.transport), **settings)

    def admin(self) -> Admin:
        """An Admin of this service."""
        return Admin(transport=self.transport)

    def async_admin(self) -> AsyncAdmin:
        """An AsyncAdmin of this service."""
        return AsyncAdmin(transport=ThreadedTransport(self.transport))

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None, *, exist_ok: bool = False
    ) -> Topic:
        """As Admin.create_topic."""
        return self.admin().create_topic(name, partitions, config, exist_ok=exist_ok)

    def create_share_group(
        self, group: str, topics: str | Iterable[str], config: Mapping[str, Any] | None = None
    ) -> ShareGroup:
        """As Admin.create_share_group."""
        return self.admin().create_share_group(group, topics, config)

    def add_function(self, arn: str, handler: Callable[[dict[str, Any], None], Any]) -> None:
        """Let `handler(event, context)` be the Lambda function `arn`, as the target of subscriptions.

        Its context is None. An exception refuses the batch, and an answer may name records in `batchItemFailures`.
        """
        self._functions.handlers[arn] = handler

    def deliver_pushes(self) -> None:
        """Deliver all that subscriptions have to deliver now, in this thread. Copies to topics are made too.

        A batch that failed is tried again by a later call, once its pause is over.
        """
        for _ in range(_PUSH_ROUNDS_MAX):
            if not deliver_due(self._instance, self._queue):
                return

    def records(self, topic: str) -> list[ConsumerRecord]:
        """All records that a topic holds now, partition by partition, in order."""
        ends = self._offsets(topic, "latest")
        starts = self._offsets(topic, "earliest")
        wanted = [each for each in ends if starts[each] < ends[each]]
        records: list[ConsumerRecord] = []
        with Consumer(transport=self.transport) as consumer:
            consumer.assign(wanted)
            while any(consumer.position(each) < ends[each] for each in wanted):
                records += consumer.poll()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def close(self) -> None:
        """Close the producers and consumers that it made. Delayed records that wait never come."""
        while self._closers:
            self._closers.pop()()
        self._triggers.close()

    def __enter__(self) -> Self:
        """The service."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _offsets(self, topic: str, timestamp: str) -> dict[TopicPartition, int]:
        found = self.admin().list_offsets(topic, timestamp)
        return {TopicPartition(topic, partition): offset or 0 for partition, offset in found.items()}
