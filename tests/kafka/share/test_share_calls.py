import pytest

from penstock.http.http_message import HttpRequest, Response
from penstock.model import TopicPartition
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import stamp, walk
from penstock_kafka.share.share_calls import AcquireAnswer, acquire_answer

REQUEST = HttpRequest(method="POST", path="/v1/share-groups/workers/acquire", headers={}, body=b"")


def batch(base: int, count: int) -> bytes:
    data = bytearray(encode([NewRecord(0, None, b"v")] * count))
    stamp(data, base)
    return bytes(data)


def answer(*locks: tuple[str, list[list[int]], list[bytes]]) -> AcquireAnswer:
    partitions = [
        {
            "topic": "orders",
            "topic_id": "6c2186613e4773f0e2f4",
            "partition": 0,
            "lock_id": name,
            "delivery_count": 1,
            "ranges": ranges,
            "until_ms_left": 1_000,
            "length": sum(map(len, batches)),
        }
        for name, ranges, batches in locks
    ]
    header = {"lock_ms": 30_000, "partitions": partitions}
    body = frame.encode(header, [each for _, _, batches in locks for each in batches])
    return acquire_answer(REQUEST, Response(200, {}, body))


def test_batch_that_two_locks_share_is_told_once_and_in_order() -> None:
    first, second = batch(0, 5), batch(5, 5)
    found = answer(("a", [[5, 7]], [second]), ("b", [[0, 5], [7, 10]], [first, second]))
    partition = found.partitions[TopicPartition("orders", 0)]
    assert [each.base_offset for _, each in walk(partition.records())] == [0, 5]
    assert sorted((each.start, each.end) for each in partition.acquired) == [(0, 5), (5, 7), (7, 10)]
    assert [each.offsets for each in found.locks] == [(5, 6), (0, 1, 2, 3, 4, 7, 8, 9)]


@pytest.mark.parametrize(
    ("ranges", "offsets", "missing"),
    [
        ([[0, 12]], (2, 3, 4, 8, 9), (0, 1, 5, 6, 7, 10, 11)),
        ([[3, 4]], (3,), ()),
        ([[5, 8]], (), (5, 6, 7)),
        ([[0, 3], [9, 11]], (2, 9), (0, 1, 10)),
    ],
)
def test_offsets_that_no_batch_covers_are_missing(
    ranges: list[list[int]], offsets: tuple[int, ...], missing: tuple[int, ...]
) -> None:
    [lock] = answer(("a", ranges, [batch(2, 3), batch(8, 2)])).locks
    assert (lock.offsets, lock.missing) == (offsets, missing)
