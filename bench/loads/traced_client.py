"""A producer and a consumer whose service answers at once: prints the CPU of a record, as JSON.

`bench/tracing.py` runs it in processes of its own, also on an older checkout, so it needs nothing of `bench`.

    python bench/loads/traced_client.py MODE RECORDS
"""

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from penstock import Consumer, Producer, TopicPartition
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock, MemoryTransport
from penstock_core.records import frame

TOPIC = "orders"
VALUE = bytes(range(100))
HELD_S = 0.2
_PARTITION = TopicPartition(TOPIC, 0)
_WITH_RECORDS_BYTES = 1_000  # an answer without records is shorter


class AnswersAtOnce:
    """Knows each answer to a fetch by its offset, and takes each produce request.

    It holds a fetch at the end of the log for a while, as the service does: else the consumer would ask all the time.
    """

    def __init__(self, inner: MemoryTransport) -> None:
        self._inner = inner
        self._fetched: dict[int, Response] = {}
        self._has_ended = threading.Event()
        self.is_storing = True

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/produce" and not self.is_storing:
            batches: Any = frame.decode(body)[0]["batches"]
            return Response(200, {}, json.dumps({"results": [{"base_offset": 0} for _ in batches]}).encode())
        if path != "/v1/fetch":
            return self._inner.call(method, path, query, headers, body)
        offset = int(json.loads(body)["partitions"][0]["offset"])
        if offset not in self._fetched:
            self._fetched[offset] = self._inner.call(method, path, query, headers, body)
        if len(self._fetched[offset].body) < _WITH_RECORDS_BYTES:
            self._has_ended.wait(HELD_S)
        return self._fetched[offset]

    def close(self) -> None:
        pass


def main(mode: str, records: int) -> None:
    """Print the CPU of a record in microseconds: `{"produce": 4.1, "poll": 0.9}`."""
    options = _provide(mode)
    with MemoryPenstock() as service:
        service.create_topic(TOPIC)
        transport = AnswersAtOnce(service.transport)
        _produce(transport, records, options)
        transport.is_storing = False
        _poll(transport, records)  # the answers are known from now on
        produced = min(_produce(transport, records, options) for _ in range(3))
        polled = min(_poll(transport, records) for _ in range(3))
    print(json.dumps({"produce": produced * 1e6 / records, "poll": polled * 1e6 / records}))


def _produce(transport: AnswersAtOnce, records: int, options: Mapping[str, Any]) -> float:
    started_s = time.process_time()
    with Producer(transport=transport, **options) as producer:
        for _ in range(records):
            producer.send(TOPIC, VALUE)
    return time.process_time() - started_s


def _poll(transport: AnswersAtOnce, records: int) -> float:
    started_s, found = time.process_time(), 0
    with Consumer(transport=transport) as consumer:
        consumer.assign([_PARTITION])
        while found < records:
            found += len(consumer.poll())
    return time.process_time() - started_s


def _provide(mode: str) -> dict[str, Any]:
    """Set the provider of the mode. Returns the producer's options."""
    if mode == "not imported":
        return {}
    from opentelemetry import trace

    if mode == "no provider":
        return {}
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

    class Drops(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002 - as the API has it
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ALWAYS_OFF if mode == "sampled out" else ALWAYS_ON)
    provider.add_span_processor(BatchSpanProcessor(Drops()))
    trace.set_tracer_provider(provider)
    return {"trace_records": False} if mode == "a span for each batch" else {}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
