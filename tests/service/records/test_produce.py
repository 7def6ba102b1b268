"""Produce: right entries are appended in order, and a wrong entry fails alone."""

import random
import struct

import pytest
from crc32c import crc32c

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import produce
from tests.support.service import another_instance, appended, ask, batch, entry, new_topic, read_all, send, values_of


def test_produce_gives_dense_offsets_in_append_order(instance: Instance) -> None:
    topic = new_topic(instance)
    results = [send(instance, topic, *(f"{number}.{part}" for part in range(number))) for number in range(1, 6)]
    bounds = [(result.base_offset, result.next_offset) for result in results]
    assert bounds == [(0, 1), (1, 3), (3, 6), (6, 10), (10, 15)]
    expected = [f"{number}.{part}" for number in range(1, 6) for part in range(number)]
    assert read_all(instance, topic) == list(enumerate(expected))


@pytest.mark.parametrize("compression", list(Compression))
def test_produce_keeps_bytes_as_they_came_but_for_the_base_offset(instance: Instance, compression: Compression) -> None:
    topic = new_topic(instance)
    send(instance, topic, "before", "it")
    sent = batch(*["same"] * 50, compression=compression)
    produce(instance, [entry(topic, 0, sent)], Acks.QUORUM)
    got = bytes(ask(instance, topic, 2).data)
    assert struct.unpack_from(">q", got) == (2,)
    assert got[8:] == sent[8:]


def test_produce_appends_to_several_topics_and_partitions_in_one_segment(instance: Instance) -> None:
    new_topic(instance, "orders", 3)
    new_topic(instance, "bills", 2)
    places = [("orders", 2), ("bills", 0), ("orders", 0), ("bills", 1)]
    entries = [entry(topic, number, batch(f"{topic}{number}")) for topic, number in places]
    results = produce(instance, entries, Acks.ALL)
    assert results == (appended(0, 1),) * 4
    for topic, number in places:
        assert read_all(instance, topic, number) == [(0, f"{topic}{number}")]
    assert read_all(instance, "orders", 1) == []
    assert len(instance.stores.zones[0].segments) == 1  # type: ignore[attr-defined]


def test_produce_takes_several_batches_of_one_partition_as_one_append(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "first")
    batches = (batch("a", "b"), batch("c"), batch("d", "e", "f", compression=Compression.ZSTD))
    [result] = produce(instance, [entry(topic, 0, *batches)], Acks.QUORUM)
    assert result == appended(1, 7)
    assert read_all(instance, topic) == list(enumerate(["first", "a", "b", "c", "d", "e", "f"]))


def _flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


BAD = {
    "unknown topic": (("missing", 0), batch("x"), ErrorCode.UNKNOWN_TOPIC, "'missing'"),
    "bad name": (("a b", 0), batch("x"), ErrorCode.INVALID_NAME, "'a b'"),
    "unknown partition": (("orders", 9), batch("x"), ErrorCode.UNKNOWN_PARTITION, "partition 9"),
    "negative partition": (("orders", -1), batch("x"), ErrorCode.UNKNOWN_PARTITION, "partition -1"),
    "corrupt CRC": (("orders", 1), _flipped(batch("x"), 65), ErrorCode.CORRUPT_BATCH, "batch 0"),
    "second batch corrupt": (("orders", 1), batch("x") + _flipped(batch("y"), 66), ErrorCode.CORRUPT_BATCH, "batch 1"),
    "torn": (("orders", 1), batch("x")[:-1], ErrorCode.CORRUPT_BATCH, "68 are left"),
    "nothing": (("orders", 1), b"", ErrorCode.CORRUPT_BATCH, "0 bytes"),
    "magic 1": (("orders", 1), batch("x")[:16] + b"\1" + batch("x")[17:], ErrorCode.UNSUPPORTED_FORMAT, "magic 1"),
    "oversize": (("small", 0), batch("x" * 1_024), ErrorCode.RECORD_TOO_LARGE, "max_batch_bytes=1024"),
}


@pytest.mark.parametrize("name", BAD)
def test_produce_fails_one_partition_alone_when_it_is_bad(instance: Instance, name: str) -> None:
    new_topic(instance, "orders", 3)
    new_topic(instance, "small", 1, max_batch_bytes=1_024)
    place, data, code, told = BAD[name]
    good = [entry("orders", 0, batch("left")), entry("orders", 2, batch("right"))]
    left, bad, right = produce(instance, [good[0], entry(*place, data), good[1]], Acks.QUORUM)
    assert left == right == appended(0, 1)
    assert isinstance(bad, PenstockError)
    assert (bad.code, bad.maybe_applied) == (code, False)
    assert told in bad.message
    assert [read_all(instance, "orders", number) for number in range(3)] == [[(0, "left")], [], [(0, "right")]]


def test_produce_tells_the_limit_when_a_batch_is_too_large(instance: Instance) -> None:
    topic = new_topic(instance, max_batch_bytes=1_024)
    fits = batch("x" * (1_024 - 61 - 9))
    assert len(fits) == 1_024
    (taken,) = produce(instance, [entry(topic, 0, fits)], Acks.QUORUM)
    (refused,) = produce(instance, [entry(topic, 0, batch("x" * (1_024 - 61 - 8)))], Acks.QUORUM)
    assert isinstance(taken, AppendedRange)
    assert isinstance(refused, PenstockError)
    assert refused.facts == {"limit": 1_024}


def test_produce_puts_nothing_when_every_entry_is_bad(instance: Instance) -> None:
    produce(instance, [entry("missing", 0, batch("x"))], Acks.QUORUM)
    assert all(not zone.segments for zone in instance.stores.zones)  # type: ignore[attr-defined]


def test_produce_refuses_the_request_when_a_partition_stands_twice(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    entries = [entry(topic, 0, batch("x")), entry(topic, 1, batch("y")), entry(topic, 0, batch("z"))]
    with pytest.raises(PenstockError, match="partition 0 of topic 'orders' stands twice") as caught:
        produce(instance, entries, Acks.QUORUM)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert [read_all(instance, topic, number) for number in range(2)] == [[], []]


@pytest.mark.parametrize("count", [0, limits.REQUEST_PARTITIONS_MAX + 1])
def test_produce_refuses_the_request_when_it_has_too_few_or_too_many_partitions(instance: Instance, count: int) -> None:
    topic = new_topic(instance, partitions=200)
    with pytest.raises(PenstockError, match=f"{count} topic-partitions") as caught:
        produce(instance, [entry(topic, number, batch("x")) for number in range(count)], Acks.QUORUM)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_produce_takes_as_many_partitions_as_the_limit_says(instance: Instance) -> None:
    topic = new_topic(instance, partitions=limits.REQUEST_PARTITIONS_MAX)
    entries = [entry(topic, number, batch("x")) for number in range(limits.REQUEST_PARTITIONS_MAX)]
    assert produce(instance, entries, Acks.QUORUM) == (appended(0, 1),) * len(entries)


def test_produce_refuses_more_records_than_a_ref_counts(instance: Instance) -> None:
    """Small compressed batches that each claim a million records."""
    topic = new_topic(instance)
    claiming = bytearray(batch(random.Random(1).randbytes(400).hex(), compression=Compression.ZSTD))
    struct.pack_into(">i", claiming, 23, limits.BATCH_RECORDS_MAX - 1)
    struct.pack_into(">i", claiming, 57, limits.BATCH_RECORDS_MAX)
    struct.pack_into(">I", claiming, 17, crc32c(claiming[21:]))
    [result] = produce(instance, [entry(topic, 0, bytes(claiming) * 4_295)], Acks.QUORUM)
    assert isinstance(result, PenstockError)
    assert result.code is ErrorCode.UNSUPPORTED_FORMAT
    assert "4295000000 records" in result.message


def test_produce_is_seen_by_another_instance_at_once(instance: Instance) -> None:
    topic = new_topic(instance)
    other = another_instance(instance)
    send(instance, topic, "a")
    send(other, topic, "b")
    assert values_of(ask(instance, topic)) == values_of(ask(other, topic)) == [(0, "a"), (1, "b")]
