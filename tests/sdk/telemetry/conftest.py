"""An application with providers of OpenTelemetry that keep what they get."""

from collections.abc import Iterator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.testing import MemoryPenstock
from tests.sdk.telemetry.recorded import Recorded


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    return Recorded(exporter, reader, tracers.get_tracer("app"))


@pytest.fixture
def penstock(recorded: Recorded) -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders")
        yield service
