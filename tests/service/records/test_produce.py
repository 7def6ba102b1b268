"""Produce: right entries are appended in order, and a wrong entry fails alone.

The topic setting `validate_records`: undecodable batches are refused at produce, alone, in every way to produce.
"""

import json
import random
import struct
from typing import Any

import pytest
from crc32c import crc32c

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import with_records
from penstock_core.records.record_batch import Compression, parse_header
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.alter_topic import alter_topic
from tests.handlers.service import Service
from tests.handlers.test_transactions import begin, transact
from tests.support.poison import bomb, undecodable_batch
from tests.support.push_records import StoredRecord
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


def test_an_undecodable_batch_is_refused_and_its_neighbours_are_appended(instance: Instance) -> None:
    new_topic(instance, "strict", 2, validate_records=True)
    new_topic(instance, "open")

    results = produce(
        instance,
        [
            entry("strict", 0, batch("a"), undecodable_batch(5)),
            entry("strict", 1, batch("b")),
            entry("open", 0, undecodable_batch(5)),
        ],
        Acks.QUORUM,
    )

    error = results[0]
    assert isinstance(error, PenstockError)
    assert (error.code, error.facts) == (ErrorCode.CORRUPT_BATCH, {"batch": 1})
    assert "build it again" in error.message
    assert [isinstance(each, PenstockError) for each in results] == [True, False, False]
    assert read_all(instance, "strict", 1) == [(0, "b")]


def test_record_before_1970_is_refused_wherever_it_stands(instance: Instance) -> None:
    new_topic(instance, "strict", validate_records=True)
    [error] = produce(
        instance,
        [entry("strict", 0, with_records(parse_header(batch("a", "b")), [StoredRecord(0, 5), StoredRecord(1, -5)]))],
        Acks.QUORUM,
    )
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_record_without_a_key_is_refused_where_a_compacted_topic_is_validated(instance: Instance) -> None:
    new_topic(instance, "strict", cleanup_policy="compact", validate_records=True)
    new_topic(instance, "compacted", cleanup_policy="compact")
    new_topic(instance, "plain", validate_records=True)
    results = produce(instance, [entry(name, 0, batch("a")) for name in ("strict", "compacted", "plain")], Acks.QUORUM)
    assert [each.code if isinstance(each, PenstockError) else None for each in results] == [
        ErrorCode.INVALID_RECORD,
        None,
        None,
    ]


def test_one_request_decodes_so_many_bytes_over_all_its_partitions(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_service.records.produce.VALIDATED_BYTES_MAX", 1_000)
    new_topic(instance, "strict", 3, validate_records=True)

    results = produce(instance, [entry("strict", number, bomb(600)) for number in range(3)], Acks.QUORUM)

    codes = [each.code if isinstance(each, PenstockError) else None for each in results]
    assert codes == [None, None, ErrorCode.REQUEST_TOO_LARGE]


def test_the_setting_takes_effect_and_ends_as_any_setting(instance: Instance) -> None:
    new_topic(instance, "orders")
    for is_validated in (True, False):
        alter_topic(instance, "orders", None, {"validate_records": is_validated})
        instance.topic_cache.forget("orders")
        [result] = produce(instance, [entry("orders", 0, undecodable_batch(5))], Acks.QUORUM)
        assert isinstance(result, PenstockError) is is_validated
    wrongs: tuple[Any, ...] = (1, "true", [])
    for wrong in wrongs:
        with pytest.raises(PenstockError, match=r"validate_records=.*must be true or false"):
            alter_topic(instance, "orders", None, {"validate_records": wrong})


def test_batches_that_the_service_encodes_itself_are_not_decoded(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(instance, "strict", validate_records=True)
    monkeypatch.setattr("penstock_core.records.record_check.decode", lambda *_: pytest.fail("decoded"))
    own = ProduceEntry(topic="strict", partition=0, data=batch("a"), is_own_encoding=True)
    [result] = produce(instance, [own], Acks.QUORUM)
    assert not isinstance(result, PenstockError)


def test_a_transaction_s_stage_and_commit_are_refused_too() -> None:
    service = Service()
    service.create("strict", validate_records=True)
    begun = begin(service)
    for extra in ({"stage": 0}, {}):
        fields = {"epoch": begun["epoch"], "transaction": begun["transaction"], **extra}
        answer = transact(service, ("strict", 0, undecodable_batch(5)), **fields)
        assert (answer.status, answer.error["code"]) == (400, "CORRUPT_BATCH")
        assert answer.error["batch"] == 0


def test_topics_show_the_setting_in_the_json_api() -> None:
    service = Service()
    service.create("strict", validate_records=True)
    assert service.call("GET", "/v1/topics/strict").json["config"]["validate_records"] is True
    records = {"records": [{"value": "v"}]}
    assert json.loads(service.call("POST", "/v1/topics/strict/records", records).body)["offsets"][0]["offset"] == 0
