"""Throughput: librdkafka alone, through the gateway to a stand-in, and through the gateway to the local stack."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Producer

from bench.kafka.gateway_process import GatewayProcess, gateway_process, machine_cpu_s
from bench.kafka.librdkafka import Load, consume, produce
from bench.kafka.null_service import TOPIC as NULL_TOPIC
from bench.report.result import Row
from penstock import Admin

PARTITIONS = 6
_PLAIN: dict[str, Any] = {"enable.idempotence": False, "acks": "all"}
_IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True}
BARS = {"produce, plain": 100_000, "produce, idempotent": 60_000, "consume": 80_000}


def of_the_client(count: int) -> list[Row]:
    """The broker that librdkafka brings for its own tests answers: what the client can do on this machine."""
    holder = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    broker = next(iter(holder.list_topics(timeout=5).brokers.values()))
    address = f"{broker.host}:{broker.port}"
    return [_row(request, produce(address, "t", count, settings)) for request, settings in _PRODUCES.items()]


def of_the_gateway(count: int) -> list[Row]:
    """The gateway in front of a service that does nothing: the gateway's own ceiling beside one client."""
    with _null_service(count // PARTITIONS) as url:
        environment = {"PENSTOCK_URL": url, "AWS_REGION": "us-east-1"}
        with gateway_process({**_SOME_KEYS, **environment}) as gateway:
            rows = _produced(gateway, NULL_TOPIC, count)
            readable = count // PARTITIONS * PARTITIONS
            return [*rows, _measured(gateway, "consume", lambda: _consumed(gateway, NULL_TOPIC, readable))]


def of_the_stack(count: int, transport: str = "http") -> list[Row]:
    """The gateway in front of the deployed local stack, which shares the machine. `embedded` calls its storage only."""
    topic = f"bench-kafka-{time.time_ns():x}"
    with Admin() as admin, gateway_process(None, "--transport", transport) as gateway:
        admin.create_topic(topic, partitions=PARTITIONS)
        try:
            produce(gateway.address, topic, count // 20, _PLAIN)  # functions start
            _consumed(gateway, topic, count // 20)
            rows = _produced(gateway, topic, count)
            stored = sum(each.high_watermark for each in admin.describe_topic(topic).offsets)
            if stored != count // 20 + count * len(rows):
                raise RuntimeError(f"{stored:,} records are stored, which is not what was acknowledged")
            return [*rows, _measured(gateway, "consume", lambda: _consumed(gateway, topic, stored))]
        finally:
            admin.delete_topic(topic)


_PRODUCES = {"produce, plain": _PLAIN, "produce, idempotent": _IDEMPOTENT}
_SOME_KEYS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


def _produced(gateway: GatewayProcess, topic: str, count: int) -> list[Row]:
    return [
        _measured(gateway, request, partial(produce, gateway.address, topic, count, settings))
        for request, settings in _PRODUCES.items()
    ]


def _consumed(gateway: GatewayProcess, topic: str, count: int) -> Load:
    return consume(gateway.address, topic, count, PARTITIONS)


def _measured(gateway: GatewayProcess, request: str, run: Callable[[], Load]) -> Row:
    """The row of a run. The rest of the machine's CPU is the service and its emulator, if nothing else runs."""
    gateway_s, machine_s = gateway.cpu_s(), machine_cpu_s()
    load = run()
    gateway_s, machine_s = gateway.cpu_s() - gateway_s, machine_cpu_s() - machine_s
    per_million = 1_000_000 / load.records
    return {
        **_row(request, load),
        "gateway_cpu_s": round(gateway_s * per_million, 2),
        "other_cpu_s": round(max(machine_s - gateway_s - load.client_cpu_s, 0) * per_million, 2),
    }


def _row(request: str, load: Load) -> Row:
    return {
        "request": request,
        "records_per_s": load.records_per_s,
        "client_cpu_s": round(load.client_cpu_s * 1_000_000 / load.records, 2),
    }


@contextmanager
def _null_service(records: int) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.kafka.null_service", str(PARTITIONS), str(records)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
