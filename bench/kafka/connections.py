"""The gateway's memory with many connections: each has produced, and then waits in a fetch."""

import io
import socket
import struct
import time
from typing import Any

from kio.index import load_request_schema
from kio.serial import entity_writer

from bench.kafka.gateway_process import gateway_process
from bench.report.result import Row
from penstock import Admin
from penstock_core.records.codec import NewRecord, encode
from penstock_kafka.dispatch.entities import entity_of

MB_BAR = 200
_PRODUCE, _FETCH = (0, 9), (1, 12)  # APIs in versions that clients use now
_PATIENCE_S = 120.0


def rows(count: int) -> list[Row]:
    """The memory before, with all connections waiting, and at its highest."""
    topic = f"bench-kafka-{time.time_ns():x}"
    batch = encode([NewRecord(1, None, b"x" * 100)] * 10)
    produce = _request(*_PRODUCE, _produce_body(topic, batch))
    with Admin() as admin, gateway_process() as gateway:
        admin.create_topic(topic, partitions=1)
        host, _, port = gateway.address.rpartition(":")
        idle_mb = gateway.memory_mb()
        links = [socket.create_connection((host, int(port)), timeout=_PATIENCE_S) for _ in range(count)]
        try:
            for link in links:
                link.sendall(produce)
            for link in links:
                _answer(link)
            end = admin.describe_topic(topic).offsets[0].high_watermark
            if end != 10 * count:
                raise RuntimeError(f"{end:,} records are there in place of {10 * count:,}")
            fetch = _request(*_FETCH, _fetch_body(topic, end))
            for link in links:
                link.sendall(fetch)
            time.sleep(5)  # they wait now
            waiting_mb = gateway.memory_mb()
            admin.delete_topic(topic)
        finally:
            for link in links:
                link.close()
        return [
            {
                "connections": count,
                "before_mb": round(idle_mb),
                "waiting_mb": round(waiting_mb),
                "peak_mb": round(gateway.memory_mb("VmHWM")),
                "bar_mb": MB_BAR,
            }
        ]


def _produce_body(topic: str, batch: bytes) -> dict[str, object]:
    partitions = [{"index": 0, "records": batch}]
    return {"acks": -1, "timeout": 60_000, "topic_data": [{"name": topic, "partition_data": partitions}]}


def _fetch_body(topic: str, offset: int) -> dict[str, object]:
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 2**20, "current_leader_epoch": -1}]
    topics = [{"topic": topic, "partitions": partitions}]
    return {"max_wait": 60_000, "min_bytes": 1, "max_bytes": 50 * 2**20, "session_epoch": -1, "topics": topics}


def _request(key: int, version: int, body: dict[str, object]) -> bytes:
    kind: Any = load_request_schema(key, version)
    header = kind.__header_schema__
    names = {"request_api_key": key, "request_api_version": version, "correlation_id": 1, "client_id": "bench"}
    buffer = io.BytesIO()
    entity_writer(header)(buffer, entity_of(header, names))
    entity_writer(kind)(buffer, entity_of(kind, body))
    return struct.pack(">i", buffer.tell()) + buffer.getvalue()


def _answer(link: socket.socket) -> bytes:
    with link.makefile("rb") as stream:
        return stream.read(struct.unpack(">i", stream.read(4))[0])
