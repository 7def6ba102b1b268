"""Without a provider the SDK does nothing for OpenTelemetry, and does not import it."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider

from penstock import tracing
from penstock.model import ConsumerRecord
from penstock.telemetry.opening import find_telemetry, open_notes
from penstock.testing import MemoryPenstock
from tests.sdk.telemetry.recorded import Recorded
from tests.sdk.test_import import imported

RECORD = ConsumerRecord("orders", 0, 0, 0, None, b"1", ())


def test_nothing_is_found_without_a_provider() -> None:
    assert find_telemetry() is None
    assert open_notes(None, "g") is None


def test_records_stay_as_they_are_without_a_provider() -> None:
    with MemoryPenstock() as penstock:
        penstock.create_topic("orders")
        penstock.producer().send("orders", b"1").result()
        (record,) = penstock.records("orders")
        assert record.headers == ()
        with penstock.consumer("orders").processing(record), tracing.processing(record):
            assert not trace.get_current_span().get_span_context().is_valid


def test_a_provider_of_metrics_alone_gets_metrics(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    with MemoryPenstock() as penstock:
        penstock.create_topic("orders")
        penstock.producer().send("orders", b"1").result()
        (record,) = penstock.records("orders")
    assert record.headers == ()
    (sent,) = recorded.points("messaging.client.sent.messages")
    assert sent.value == 1


def test_clients_of_one_service_share_their_instruments(recorded: Recorded) -> None:
    assert find_telemetry() is find_telemetry()
    assert find_telemetry() is not None


def test_a_processor_that_raises_fails_no_record(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the exporter is broken")

    telemetry = find_telemetry()
    assert telemetry is not None
    monkeypatch.setattr(telemetry, "_report", fail)
    with MemoryPenstock() as penstock:
        penstock.create_topic("orders")
        penstock.producer().send("orders", b"1").result()
        assert len(penstock.records("orders")) == 1


def test_stand_ins_of_the_api_count_as_no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert find_telemetry() is None
    assert not type(MeterProvider()).__module__.startswith("opentelemetry.metrics")


@pytest.mark.slow
def test_a_producer_imports_no_opentelemetry_by_itself() -> None:
    code = "from penstock.testing import MemoryPenstock; p = MemoryPenstock(); p.producer(); p.close()"
    assert "opentelemetry" not in imported(code)
