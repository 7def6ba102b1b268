"""Batches that the service takes and no reader can decode, and batches that are far larger than they look."""

import json
import struct

from crc32c import crc32c

from penstock.http.transport import Transport
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.compression import compress
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, Compression

NOW_MS = 1_790_000_000_000
_FIELDS = {
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "first_timestamp_ms": (27, ">q"),
    "max_timestamp_ms": (35, ">q"),
}


def sealed(payload: bytes, record_count: int, compression: Compression = Compression.ZSTD, **header: int) -> bytes:
    """A batch with these bytes behind the header, compressed, and a true length and CRC."""
    stored = payload if compression is Compression.NONE else compress(payload, compression)
    data = bytearray(encode([NewRecord(NOW_MS, None, b"")])[:BATCH_HEADER_BYTES] + stored)
    fields = {"attributes": int(compression), "last_offset_delta": record_count - 1, **header}
    for name, value in fields.items():
        position, form = _FIELDS[name]
        struct.pack_into(form, data, position, value)
    struct.pack_into(">i", data, 57, record_count)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def undecodable_batch(record_count: int = 5, **header: int) -> bytes:
    """So many "records" that are 40 bytes of FF in zstd."""
    return sealed(b"\xff" * 40, record_count, Compression.ZSTD, **header)


def bomb(value_bytes: int, **header: int) -> bytes:
    """One legal record whose value takes a few KB in zstd. `header` claims other things than the record does."""
    plain = encode([NewRecord(NOW_MS, None, bytes(value_bytes))])
    return sealed(plain[BATCH_HEADER_BYTES:], 1, Compression.ZSTD, **header)


def put_batch(transport: Transport, topic: str, data: bytes, partition: int = 0) -> None:
    """Send the batch as any producer may. Fails unless the service takes it."""
    header = {"acks": "quorum", "batches": [{"topic": topic, "partition": partition, "length": len(data)}]}
    body = frame.encode(header, [data])
    answer = transport.call("POST", "/v1/produce", {}, {"Content-Type": frame.FRAME_CONTENT_TYPE}, body)
    assert answer.status == 200, answer.body
    assert "error" not in json.loads(answer.body)["results"][0], answer.body
