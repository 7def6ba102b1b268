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

The fixture `penstock_service` of penstock.pytest_plugin gives each test such a service. `advance` lets time pass.
`async_producer`, `async_consumer`, `async_share_consumer` and `async_admin` are the same for asyncio.

It needs the extra `penstock[testing]` (docs/adr/0002). No other module of the SDK imports the service.
"""

import json
import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.admin.admin import Admin
from penstock.admin.async_admin import AsyncAdmin
from penstock.arguments import check, check_whole
from penstock.consumer.async_consumer import AsyncConsumer
from penstock.consumer.consumer import Consumer
from penstock.errors import UnavailableError
from penstock.http.http_message import Response
from penstock.http.threaded_transport import ThreadedTransport
from penstock.model import ConsumerRecord, Topic, TopicPartition
from penstock.model.share import ShareGroup
from penstock.producer.async_producer import AsyncProducer
from penstock.producer.producer import Producer
from penstock.share.async_share_consumer import AsyncShareConsumer
from penstock.share.share_consumer import ShareConsumer
from penstock.system import NS_PER_MS
from penstock_core.acls.rule import parse_principal_pattern
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import INLINE_BYTES_MAX, SDK_DELAY_STEP_MS
from penstock_core.log.inline import bounds_of_setting
from penstock_core.log.timer import DueSecond
from penstock_core.mirror.push import MirrorPush, PushAnswer, parse_answer, push_header
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch
from penstock_core.push.targets.kafka_event import decode_answer, encode_kafka_event
from penstock_core.push.targets.target import FunctionTarget, StageTarget, Target
from penstock_core.records import frame
from penstock_core.schedules.schedule import starts_runs

try:
    from penstock_handlers.router import LOCAL_PRINCIPAL, dispatch
    from penstock_service.adapters.memory.messages import ClockTimerTriggers, MemoryDeliveryQueue
    from penstock_service.adapters.memory.service import memory_instance
    from penstock_service.adapters.system import MovableClock
    from penstock_service.adapters.tables.tables import Tables
    from penstock_service.compaction.clean_topics import clean_topics
    from penstock_service.groups.expire_offsets import expire_offsets
    from penstock_service.instance.instance import Instance
    from penstock_service.push.look import deliver_due
    from penstock_service.retention.keep_items import keep_items
    from penstock_service.retention.retain import retain
    from penstock_service.schedules.run_schedules import run_schedules
    from penstock_service.timers.promote import promote_second
    from penstock_service.timers.promote_due import promote_due
except ModuleNotFoundError as missing:
    hint = f"{missing}: penstock.testing needs `pip install 'penstock[testing]'`"
    raise ModuleNotFoundError(hint, name=missing.name) from missing

__all__ = ["MemoryPenstock", "MemoryTransport", "ThreadedTransport"]

_log = logging.getLogger("penstock.testing")
_START_MS_MAX = 4_102_444_800_000
_ADVANCE_MS_MAX = 10 * 366 * 86_400_000
_RUNS_MAX = 20
_AGAIN_MS = 1_000  # after a promotion that failed
_EXPIRED_AT_ONCE = 10_000
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

    def wall_clock_ns(self) -> int:
        """The service's clock, in nanoseconds since 1970: clients take the times of their records from it."""
        return self._instance.clock.now_ms() * NS_PER_MS

    def close(self) -> None:
        """Nothing to close."""
        pass


class _Run(Protocol):
    """The counts of one run of a job."""

    @property
    def failures(self) -> int: ...


class _Functions:
    """Targets: Lambda functions of this process, by ARN, and services by URL. Every other target is away."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[dict[str, Any], None], Any]] = {}
        self.stages: dict[str, MemoryTransport] = {}

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

    def mirror(self, target: StageTarget, push: MirrorPush, timeout_ms: int) -> PushAnswer | Failed:  # noqa: ARG002
        """Send the push to the other service of this process."""
        stage = self.stages.get(target.url)
        if stage is None:
            return Failed(failure=Failure.AWAY, error=f"{target.url} is no service of this test: see add_stage")
        headers = {"content-type": frame.FRAME_CONTENT_TYPE}
        answer = stage.call(
            "POST", f"/v1/mirrors/{push.mirror}/append", {}, headers, frame.encode(push_header(push), [push.data])
        )
        told = json.loads(answer.body)
        if answer.status != 200:
            return Failed(failure=Failure.AWAY, error=f"status {answer.status}: {told}")
        return parse_answer(told)


class MemoryPenstock:
    """A service of its own, empty at first, and clients of it. Closing it closes the clients that have threads.

    Its clock runs in real time from `start_ms` on (milliseconds since 1970, by default now), and `advance` moves
    it. Delayed records come while it is open, if their delay is 15 minutes at most, or when you `advance`.
    Subscriptions deliver when you call `deliver_pushes`. The principal of `transport` may do everything. With
    `denies_by_default`, others may only do what access rules allow: test yours with `transport_as`. Small appends
    go where a stage with that `inline_bytes_max` puts them, None for its default: your program sees no difference.
    """

    def __init__(
        self, *, denies_by_default: bool = False, inline_bytes_max: int | None = None, start_ms: int | None = None
    ) -> None:
        if inline_bytes_max is not None:
            check_whole("inline_bytes_max", inline_bytes_max, 0)
            most = f"use at most {INLINE_BYTES_MAX:,} bytes, or None for the default of a stage"
            check(inline_bytes_max <= INLINE_BYTES_MAX, f"inline_bytes_max={inline_bytes_max}: {most}")
        if start_ms is not None:
            check_whole("start_ms", start_ms, 0)
            check(start_ms <= _START_MS_MAX, f"start_ms={start_ms}: use at most {_START_MS_MAX:,}, in the year 2100")
        settings = AclSettings(
            allows_by_default=not denies_by_default, super_principals=(parse_principal_pattern(LOCAL_PRINCIPAL),)
        )
        self._clock = MovableClock(start_ms)
        self._tables = Tables(self._clock.now_ms)
        instance = memory_instance(
            tables=self._tables,
            clock=self._clock,
            acl_settings=settings,
            small=bounds_of_setting(inline_bytes_max),
        )
        self._triggers = ClockTimerTriggers(self._clock)
        self._functions = _Functions()
        self._queue = MemoryDeliveryQueue(instance.clock)
        stores = replace(
            instance.stores, timer_triggers=self._triggers, deliveries=self._queue, targets=self._functions
        )
        self._instance = replace(instance, stores=stores)
        self._triggers.promote = self._promote
        self.transport = MemoryTransport(self._instance)
        self._closing = ExitStack()
        self._closing.callback(self._triggers.close)
        self._advancing = Lock()

    def transport_as(self, principal_arn: str) -> MemoryTransport:
        """A transport of another IAM user, or of a role's session, to test what belongs to a principal."""
        return MemoryTransport(self._instance, principal_arn)

    def producer(self, **settings: Any) -> Producer:
        """A Producer of this service; the settings are Producer's."""
        producer = Producer(transport=self.transport, **settings)
        self._closing.callback(producer.close)
        return producer

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A Consumer of this service; the settings are Consumer's."""
        consumer = Consumer(*topics, transport=self.transport, **settings)
        self._closing.callback(consumer.close)
        return consumer

    def share_consumer(self, *topics: str, **settings: Any) -> ShareConsumer:
        """A ShareConsumer of this service; the settings are ShareConsumer's."""
        consumer = ShareConsumer(*topics, transport=self.transport, **settings)
        self._closing.callback(consumer.close)
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

    def add_stage(self, url: str, other: "MemoryPenstock") -> None:
        """Let `url` be the other service, as the stage that mirrors topics of this one (`Admin.create_mirror`)."""
        self._functions.stages[url] = other.transport

    def deliver_pushes(self) -> None:
        """Deliver all that subscriptions have to deliver now, in this thread. Copies to topics are made too.

        A batch that failed is tried again by a later call, once its pause is over.
        """
        for _ in range(_PUSH_ROUNDS_MAX):
            if not deliver_due(self._instance, self._queue):
                return

    @property
    def now_ms(self) -> int:
        """The service's clock, in milliseconds since 1970."""
        return self._clock.now_ms()

    def advance(self, duration_ms: int) -> None:
        """Let time pass at once: `duration_ms`, and up to 99 ms more, to a full tenth of a second, as delays are.

        When it returns, delayed records that are due are in their topics. So is the record of each schedule that is
        due, once, however many of its runs the time has passed: advance in steps to see each. Retention has run over
        records and groups' offsets. Compacted topics have lost what newer records of their keys supersede, but for the
        last hour, and the last 16 appends or more of each partition. Calls of clients that waited in the service look
        again. Locks, leases, sessions and pauses are as after that time. Raises InvalidError for less than 0, or more
        than ten years.

        The members of groups sent no heartbeat meanwhile, so after a session's time they join again, as after a sleep
        of a laptop. Timers of the clients themselves run in real time: heartbeats, linger, timeouts, and pauses between
        retries.
        """
        check_whole("duration_ms", duration_ms, 0)
        check(duration_ms <= _ADVANCE_MS_MAX, f"duration_ms={duration_ms}: use at most {_ADVANCE_MS_MAX:,}, ten years")
        with self._advancing:
            end_ms = self._clock.now_ms() + duration_ms
            self._clock.advance(duration_ms + -end_ms % SDK_DELAY_STEP_MS)
            self._repeat(lambda: promote_due(self._instance, budget_ms=math.inf))
            self._repeat(lambda: run_schedules(self._instance, budget_ms=math.inf))
            self._repeat(lambda: keep_items(self._instance, budget_ms=math.inf))
            self._repeat(lambda: retain(self._instance, budget_ms=math.inf))
            self._repeat(lambda: clean_topics(self._instance, budget_ms=math.inf, bytes_per_day=sys.maxsize))
            self._repeat(lambda: expire_offsets(self._instance, budget_ms=math.inf))
            while self._tables.expire(_EXPIRED_AT_ONCE) == _EXPIRED_AT_ONCE:
                pass
            self._clock.wake()

    def advance_to(self, timestamp_ms: int) -> None:
        """Set the clock: `advance` to a time in milliseconds since 1970. Raises InvalidError if that is past."""
        check_whole("timestamp_ms", timestamp_ms, 0)
        now_ms = self.now_ms
        check(timestamp_ms >= now_ms, f"timestamp_ms={timestamp_ms}: the clock shows {now_ms}, and never goes back")
        self.advance(timestamp_ms - now_ms)

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
        """Close the producers and consumers that it made, the last one first, also if one raises; then raise that.

        Delayed records that wait never come.
        """
        self._closing.close()

    def __enter__(self) -> Self:
        """The service."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _promote(self, second: DueSecond) -> None:
        """Bring the delayed records of a second that is over. If that fails, they come later."""
        try:
            if starts_runs(second):
                run_schedules(self._instance, budget_ms=math.inf)
            else:
                promote_second(self._instance, second, math.inf)
        except Exception as error:  # the one thread of the triggers must live
            _log.warning("delayed records come later: %s", error, exc_info=not isinstance(error, PenstockError))
            self._triggers.announce(second, _AGAIN_MS)

    def _repeat(self, job: Callable[[], _Run]) -> None:
        """Run the job until it meets no failure: clients and the thread of the triggers may be at the same items."""
        for _ in range(_RUNS_MAX):
            if not job().failures:
                return
        raise UnavailableError(ErrorCode.CONCURRENT_UPDATE, f"a job of the service has failed {_RUNS_MAX} times")

    def _offsets(self, topic: str, timestamp: str) -> dict[TopicPartition, int]:
        found = self.admin().list_offsets(topic, timestamp)
        return {TopicPartition(topic, partition): offset or 0 for partition, offset in found.items()}
