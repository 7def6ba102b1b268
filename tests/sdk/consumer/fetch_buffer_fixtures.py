"""A fetch buffer with small bounds, and partitions that answer its requests."""

from dataclasses import replace
from typing import Any

from penstock.consumer.fetch_buffer import FetchBuffer, FetchRequest, FetchSettings
from penstock.errors import OffsetOutOfRangeError, UnavailableError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.retry import RetryPolicy
from penstock_core.errors import ErrorCode
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import stamp

SETTINGS = FetchSettings(
    fetch_max_bytes=1_000,
    fetch_wait_ms=500,
    buffer_bytes=10_000,
    max_in_flight=2,
    offset_reset="earliest",
    retry=RetryPolicy(backoff_ms=100, backoff_max_ms=200),
)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "down")


class PartitionsService:
    """Partitions as lists of batches of known offsets; answers requests as POST /v1/fetch does."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[tuple[int, int, bytes]]] = {}
        self.starts: dict[TopicPartition, int] = {}

    def append(self, partition: TopicPartition, count: int = 1) -> None:
        base = self.end(partition)
        data = bytearray(encode([NewRecord(offset, None, b"%d" % offset) for offset in range(base, base + count)]))
        stamp(data, base)
        self.batches.setdefault(partition, []).append((base, base + count, bytes(data)))

    def end(self, partition: TopicPartition) -> int:
        return max((end for _, end, _ in self.batches.get(partition, [])), default=0)

    def answer(self, request: FetchRequest, batches_max: int = 100) -> tuple[list[dict[str, Any]], memoryview]:
        answers, bodies = [], []
        for asked in request.body["partitions"]:
            partition, offset = TopicPartition(asked["topic"], asked["partition"]), asked["offset"]
            start, end = self.starts.get(partition, 0), self.end(partition)
            bounds: dict[str, Any] = {"log_start_offset": start, "high_watermark": end}
            if not start <= offset <= end:
                error = OffsetOutOfRangeError(ErrorCode.OFFSET_OUT_OF_RANGE, "", **bounds).to_json()
                answers.append({"topic": partition.topic, "partition": partition.partition, "error": error})
                continue
            found = [each for each in self.batches.get(partition, []) if each[1] > offset][:batches_max]
            body = b"".join(data for *_, data in found)
            bodies.append(body)
            answers.append({**bounds, "next_offset": found[-1][1] if found else offset, "length": len(body)})
        return answers, memoryview(b"".join(bodies))


def new_buffer(*partitions: TopicPartition, **changes: Any) -> FetchBuffer:
    buffer = FetchBuffer(replace(SETTINGS, **changes))
    buffer.assign(partitions)
    for partition in partitions:
        buffer.seek(partition, 0)
    return buffer


def next_request(buffer: FetchBuffer, now_ms: int = 0) -> FetchRequest:
    request = buffer.next_request(now_ms)
    assert request is not None
    return request


def asked_of(request: FetchRequest) -> list[int]:
    return [asked["partition"] for asked in request.body["partitions"]]


def offsets_of(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]
