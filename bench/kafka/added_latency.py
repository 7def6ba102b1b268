"""The time that the gateway adds to a produce: the SDK alone and librdkafka through the gateway, in turns."""

import statistics
import time
from collections.abc import Callable

from confluent_kafka import Producer as KafkaProducer

from bench.kafka.gateway_process import gateway_process
from bench.report.result import Row
from penstock import Admin, Producer

_WARM_UP = 10
P50_MS_BAR = 5.0


def rows(samples: int) -> list[Row]:
    """One record of 100 B at a time, acknowledged by quorum."""
    topic = f"bench-kafka-{time.time_ns():x}"
    value = b"x" * 100
    with Admin() as admin, gateway_process() as gateway, Producer(linger_ms=0) as direct:
        admin.create_topic(topic, partitions=1)
        through = KafkaProducer({"bootstrap.servers": gateway.address, "linger.ms": 0, "enable.idempotence": True})

        def by_the_gateway() -> None:
            through.produce(topic, value)
            if through.flush(60):
                raise RuntimeError("a record was not acknowledged")

        def by_the_sdk() -> None:
            direct.send(topic, value).result()

        try:
            for _ in range(_WARM_UP):
                by_the_sdk()
                by_the_gateway()
            before_s = gateway.cpu_s()
            took = [(_ms(by_the_sdk), _ms(by_the_gateway)) for _ in range(samples)]
            cpu_ms = (gateway.cpu_s() - before_s) * 1_000 / samples
        finally:
            admin.delete_topic(topic)
    alone, gone_through = (sorted(column) for column in zip(*took, strict=True))
    added = statistics.median(gone_through) - statistics.median(alone)
    return [
        {"produce": "by the SDK", **_quantiles(alone)},
        {"produce": "through the gateway", **_quantiles(gone_through), "gateway_cpu_ms": round(cpu_ms, 2)},
        {"produce": "added", "p50_ms": round(added, 1), "bar_p50_ms": P50_MS_BAR},
    ]


def _ms(act: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    act()
    return (time.perf_counter() - began_s) * 1_000


def _quantiles(took_ms: list[float]) -> Row:
    return {
        "p50_ms": round(statistics.median(took_ms), 1),
        "p99_ms": round(statistics.quantiles(took_ms, n=100)[98], 1),
    }
