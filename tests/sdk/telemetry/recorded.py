"""What an application's providers of OpenTelemetry have got."""

from collections.abc import Iterable
from typing import NamedTuple

from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Tracer

from penstock.model import Headers


class Recorded:
    """The spans and metrics so far, and a tracer of the application."""

    def __init__(self, exporter: InMemorySpanExporter, reader: InMemoryMetricReader, tracer: Tracer) -> None:
        self._exporter = exporter
        self._reader = reader
        self.tracer = tracer

    def spans(self, name: str) -> list[ReadableSpan]:
        """The ended spans of this name, in order of their ends."""
        return [each for each in self._exporter.get_finished_spans() if each.name == name]

    def span(self, name: str) -> ReadableSpan:
        """The one ended span of this name."""
        spans = self.spans(name)
        assert len(spans) == 1, [each.name for each in self._exporter.get_finished_spans()]
        return spans[0]

    def points(self, metric: str) -> list["Point"]:
        """The data points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            Point(dict(point.attributes or {}), point.count if isinstance(point, HistogramDataPoint) else point.value)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
            if isinstance(point, HistogramDataPoint | NumberDataPoint)
        ]


class Point(NamedTuple):
    """A data point: the sum of a counter, or the count of a histogram."""

    attributes: dict[str, object]
    value: float


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    """The span's attributes."""
    return dict(span.attributes or {})


def count_of(spans: Iterable[ReadableSpan]) -> int:
    """The records that these spans are about."""
    return sum([int(str(attributes_of(each)["messaging.batch.message_count"])) for each in spans])


def context_of(span: ReadableSpan | Span) -> tuple[int, int]:
    """The ids of the trace and the span."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    """The ids of the traces and the spans that this one links to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """The ids of the trace and the span above this one."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def carried_by(headers: Headers) -> tuple[int, int]:
    """The ids of the trace and the span that a record's `traceparent` names."""
    (value,) = [value for name, value in headers if name == "traceparent"]
    assert value is not None
    _, trace_id, span_id, _ = value.decode().split("-")
    return int(trace_id, 16), int(span_id, 16)


def traceparent_of(trace_id: int, span_id: int) -> bytes:
    """The header for these ids, sampled."""
    return f"00-{trace_id:032x}-{span_id:016x}-01".encode()
