"""Spans and metrics of a client, by the conventions for messaging (conventions.py has the pages).

    send -> create (PRODUCER, one for each record; its context is in the record's headers)
    request -> send (CLIENT, one for each partition of a request and each try; links to the records)
    poll -> receive (CLIENT; links to the records)      commit, acknowledge (CLIENT)
    a handler -> process (CONSUMER; its parent is the record, unless the handler runs inside another span)

Each `send`, `receive`, `commit` and `acknowledge` is reported after it has ended, with its own times.

Record headers as a carrier of trace context, for the propagator that the application has chosen.

The default propagator writes `traceparent`, `tracestate` (https://www.w3.org/TR/trace-context/) and `baggage`. A header
that the application has set itself is never replaced.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.context import attach, detach
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)

from penstock.system import wall_clock_ns
from penstock.telemetry import operations as names
from penstock.telemetry.operations import Operation, OperationType
from penstock_core.errors import PenstockError
from penstock_core.records.codec import Headers
from penstock_core.version import VERSION

if TYPE_CHECKING:
    from penstock.telemetry.operations import AnyRecord
from collections.abc import Sequence

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter

from penstock_core.limits import SDK_SPAN_LINKS_MAX

_log = logging.getLogger("penstock.telemetry")
_SCOPE = "penstock"
_KINDS = {
    OperationType.CREATE: SpanKind.PRODUCER,
    OperationType.SEND: SpanKind.CLIENT,
    OperationType.RECEIVE: SpanKind.CLIENT,
    OperationType.PROCESS: SpanKind.CONSUMER,
    OperationType.SETTLE: SpanKind.CLIENT,
}
_Attributes = Mapping[str, str | int]
_HeaderMap = dict[str, bytes | None]


class Telemetry:
    """The tracer and the instruments of one client. `server` are the attributes that tell the service's address."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, server: _Attributes) -> None:
        self._tracer = tracers.get_tracer(_SCOPE, VERSION)
        self._base: dict[str, str | int] = {names.MESSAGING_SYSTEM: names.SYSTEM, **server}
        meter = meters.get_meter(_SCOPE, VERSION)
        self._sent = meter.create_counter(
            names.SENT_MESSAGES, "{message}", "Number of records that a producer tried to send."
        )
        self._consumed = meter.create_counter(
            names.CONSUMED_MESSAGES, "{message}", "Number of records that the application got."
        )
        self._operations = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "Duration of a send, receive or settlement.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDARIES,
        )
        self._processes = meter.create_histogram(
            names.PROCESS_DURATION,
            "s",
            "Duration of a handler's work on a record.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDARIES,
        )

    @contextmanager
    def creating(self, topic: str, headers: Headers, *, has_span: bool) -> Iterator[tuple[Headers, SpanContext | None]]:
        """A record is made: its headers with a creation context, and that context. The body appends the record.

        A context that the application has put into the headers stays as it is, and no span is made. Without `has_span`
        the record carries the context that is current.
        """
        try:
            origin = origin_in(headers)
        except (TypeError, ValueError):  # no pairs: the codec refuses them, and says so better
            yield headers, None
            return
        if origin is not None:
            yield headers, origin
            return
        if not has_span:
            current = get_current_span().get_span_context()
            yield with_context(headers), current if current.is_valid else None
            return
        span = self._tracer.start_span(
            names.span_name("create", topic),
            kind=SpanKind.PRODUCER,
            attributes=self._attributes("create", OperationType.CREATE, topic=topic),
        )
        created = span.get_span_context()
        try:
            yield with_context(headers, set_span_in_context(span)), created if created.is_valid else None
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            span.end()

    def report(self, operations: Iterable[Operation]) -> None:
        """Spans and metrics of operations that have ended. A processor of the application that raises is logged."""
        try:
            for operation in operations:
                self._report(operation)
        except Exception:  # a callback's edge: it must not end the thread that carries requests
            _log.exception("a span could not be reported")

    @contextmanager
    def processing(self, record: "AnyRecord", group: str | None, *, is_received: bool) -> Iterator[Span]:
        """The body handles the record, under its span. `is_received`: a receive span has counted the record before."""
        attributes = self._attributes(
            "process",
            OperationType.PROCESS,
            topic=record.topic,
            partition=record.partition,
            group=group,
        )
        origin = origin_in(record.headers)
        started_ns, error = wall_clock_ns(), None
        with (
            _inside(record.headers),
            self._tracer.start_as_current_span(
                names.span_name("process", record.topic),
                kind=SpanKind.CONSUMER,
                attributes={**attributes, names.MESSAGE_ID: str(record.offset)},
                links=[] if origin is None else [Link(origin)],
                set_status_on_exception=False,
            ) as span,
        ):
            try:
                yield span
            except BaseException as raised:
                error = raised
                _fail(span, raised)
                raise
            finally:
                measured = _measured(attributes, error)
                self._processes.record((wall_clock_ns() - started_ns) / 1e9, measured)
                if not is_received:
                    self._consumed.add(1, measured)

    def _report(self, operation: Operation) -> None:
        attributes = self._attributes(
            operation.name,
            operation.type,
            topic=operation.topic,
            partition=operation.partition,
            group=operation.group,
        )
        count = operation.count
        origins = operation.origins or origins_in(each.headers for each in operation.records)
        span = self._tracer.start_span(
            names.span_name(operation.name, operation.topic),
            kind=_KINDS[operation.type],
            attributes=attributes if count is None else {**attributes, names.BATCH_MESSAGE_COUNT: count},
            links=[Link(origin) for origin in origins],
            start_time=operation.started_ns,
        )
        if operation.error is not None:
            _fail(span, operation.error)
        span.end(operation.ended_ns)
        measured = _measured(attributes, operation.error)
        self._operations.record((operation.ended_ns - operation.started_ns) / 1e9, measured)
        if operation.type is OperationType.SEND:
            self._sent.add(count or 0, measured)
        elif operation.type is OperationType.RECEIVE:
            self._consumed.add(count or 0, measured)

    def _attributes(
        self,
        name: str,
        kind: OperationType,
        *,
        topic: str | None,
        partition: int | None = None,
        group: str | None = None,
    ) -> dict[str, str | int]:
        attributes = {**self._base, names.OPERATION_NAME: name, names.OPERATION_TYPE: kind.value}
        if topic:
            attributes[names.DESTINATION_NAME] = topic
        if partition is not None:
            attributes[names.DESTINATION_PARTITION_ID] = str(partition)
        if group:
            attributes[names.CONSUMER_GROUP_NAME] = group
        return attributes


@contextmanager
def _inside(headers: Headers) -> Iterator[None]:
    """The body runs in the record's context, with its baggage, unless a span is current already."""
    if get_current_span().get_span_context().is_valid:
        yield
        return
    token = attach(context_in(headers))
    try:
        yield
    finally:
        detach(token)


def _measured(attributes: _Attributes, error: BaseException | None) -> dict[str, Any]:
    """The attributes of a metric: those of the span without the partition, which would make too many series."""
    measured = {name: value for name, value in attributes.items() if name != names.DESTINATION_PARTITION_ID}
    if error is not None:
        measured[names.ERROR_TYPE] = error_type(error)
    return measured


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute(names.ERROR_TYPE, error_type(error))
    span.set_status(Status(StatusCode.ERROR, str(error)))


def error_type(error: BaseException) -> str:
    """The error's code if it is Penstock's, else the name of its class: few values, so that metrics can have them."""
    return error.code.name if isinstance(error, PenstockError) else type(error).__qualname__


class _HeaderGetter(Getter[_HeaderMap]):
    """Reads headers as texts. A header that is no text counts as absent."""

    def get(self, carrier: _HeaderMap, key: str) -> list[str] | None:
        value = carrier.get(key)
        try:
            return None if value is None else [value.decode()]
        except UnicodeDecodeError:
            return None

    def keys(self, carrier: _HeaderMap) -> list[str]:
        return list(carrier)


class _HeaderSetter(Setter[_HeaderMap]):
    def set(self, carrier: _HeaderMap, key: str, value: str) -> None:
        carrier.setdefault(key, value.encode())


_GETTER = _HeaderGetter()
_SETTER = _HeaderSetter()


def context_in(headers: Headers) -> Context:
    """The context that these headers carry: empty, if they carry none. Of a name that comes twice the last counts."""
    return propagate.extract(dict(headers), context=Context(), getter=_GETTER)


def origin_in(headers: Headers) -> SpanContext | None:
    """The creation context in these headers, None if there is none that is valid."""
    if not headers:
        return None
    origin = get_current_span(context_in(headers)).get_span_context()
    return origin if origin.is_valid else None


def with_context(headers: Headers, context: Context | None = None) -> Headers:
    """The headers, and behind them those of the context, by default of the current one."""
    carrier: _HeaderMap = dict(headers)
    known = len(carrier)
    propagate.inject(carrier, context=context, setter=_SETTER)
    return headers if len(carrier) == known else (*headers, *list(carrier.items())[known:])


def origins_in(records_headers: Iterable[Headers]) -> Sequence[SpanContext]:
    """The creation contexts of these records, each once, `SDK_SPAN_LINKS_MAX` at most."""
    origins: dict[tuple[int, int], SpanContext] = {}
    for headers in records_headers:
        origin = origin_in(headers)
        if origin is not None:
            origins[origin.trace_id, origin.span_id] = origin
            if len(origins) == SDK_SPAN_LINKS_MAX:
                break
    return list(origins.values())
