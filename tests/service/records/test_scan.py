"""Fetch with a filter: every record that matches, at its offset, once; and progress where none does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.filters import filtered_batch
from penstock_core.filters.filter import tags_of
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import Compression, crc_is_valid, walk
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records import scan
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import produce
from tests.core.filters.oracle import HEADERS, POLICIES, Headers, is_match
from tests.support.service import counted_instance, entry, head_of, new_topic, patient_instance

ORDERS = {"type": ["order"]}


def batch_of(*headers: Headers, compression: Compression = Compression.NONE, time_ms: int = 1_000) -> bytes:
    return encode([NewRecord(time_ms, None, b"v", tuple(each)) for each in headers], compression)


def put(instance: Instance, *batches: bytes, tag_filter: int | None = None) -> None:
    """One append of the batches, whose ref gets the tag filter."""
    sent = replace(entry("orders", 0, *batches), tag_filter=tag_filter)
    produce(instance, [sent], Acks.QUORUM).all_ok()


def filtered(
    instance: Instance, policy: Mapping[str, Any], offset: int = 0, max_bytes: int = limits.FETCH_BYTES_MAX
) -> FetchResult:
    wanted = FetchEntry(topic="orders", partition=0, offset=offset, max_bytes=max_bytes, filter=parse_filter(policy))
    [result] = fetch(instance, [wanted], max_bytes=max_bytes, min_bytes=1, wait_ms=0).all_ok()
    return result


def offsets_of(fetched: FetchResult) -> list[int]:
    for position, header in walk(fetched.data):
        assert crc_is_valid(fetched.data, position, header)
    return [record.offset for record in decode(fetched.data)]


def read_all(instance: Instance, policy: Mapping[str, Any], max_bytes: int = limits.FETCH_BYTES_MAX) -> list[int]:
    found: list[int] = []
    offset = 0
    while offset < head_of(instance, "orders").next_offset:
        fetched = filtered(instance, policy, offset, max_bytes)
        assert fetched.next_offset > offset, "a fetch below the end must move on"
        assert all(offset <= each < fetched.next_offset for each in offsets_of(fetched))
        found += offsets_of(fetched)
        offset = fetched.next_offset
    return found


@settings(max_examples=60)
@given(
    policy=POLICIES,
    appends=st.lists(st.lists(st.lists(HEADERS, min_size=1, max_size=4), min_size=1, max_size=2), max_size=40),
    max_bytes=st.sampled_from([1, 200, limits.FETCH_BYTES_MAX]),
    has_tags=st.booleans(),
)
def test_filtered_fetches_find_every_record_that_matches_once(
    policy: dict[str, Any], appends: list[list[list[Headers]]], max_bytes: int, has_tags: bool
) -> None:
    instance = patient_instance()
    new_topic(instance, index_tags=True)
    records: list[Headers] = []
    for number, batches in enumerate(appends):
        bits = 0
        for headers in (each for one in batches for each in one):
            bits |= tags_of(headers)
        data = [batch_of(*each, compression=Compression(number % 5)) for each in batches]
        put(instance, *data, tag_filter=bits if has_tags else None)
        records += [headers for one in batches for headers in one]
    expected = [offset for offset, headers in enumerate(records) if is_match(policy, headers)]
    assert read_all(instance, policy, max_bytes) == expected


@pytest.fixture
def orders(instance: Instance) -> Instance:
    """20 appends of 4 records each; the last record of each is an order."""
    new_topic(instance)
    for _ in range(20):
        put(instance, batch_of([("type", b"x")], [], [("type", b"x")], [("type", b"order")]))
    return instance


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 17, 78, 79, 80])
def test_records_below_the_offset_are_not_sent(orders: Instance, offset: int) -> None:
    fetched = filtered(orders, ORDERS, offset)
    assert offsets_of(fetched) == [each for each in range(3, 80, 4) if each >= offset]
    assert (fetched.next_offset, fetched.high_watermark) == (80, 80)


def test_answer_stays_within_its_bytes_and_goes_on_behind_its_last_batch(orders: Instance) -> None:
    one = len(filtered(orders, ORDERS, 76).data)
    fetched = filtered(orders, ORDERS, 0, 3 * one)
    assert offsets_of(fetched) == [3, 7, 11]
    assert len(fetched.data) == 3 * one
    assert offsets_of(filtered(orders, ORDERS, fetched.next_offset)) == list(range(15, 80, 4))
    assert offsets_of(filtered(orders, ORDERS, 0, 1)) == [3], "one batch is always there"


def test_refs_whose_tags_exclude_a_match_are_not_read(instance: Instance) -> None:
    new_topic(instance, index_tags=True)
    for number in range(100):
        headers = [("tag", b"t%d" % number)]
        put(instance, batch_of(headers), tag_filter=tags_of(headers))
    counts: Counter[str] = Counter()
    watched = counted_instance(instance, counts)
    fetched = filtered(watched, {"tag": ["t42"]})
    assert (offsets_of(fetched), fetched.next_offset) == ([42], 100)
    assert counts["zone.get"] == 1
    counts.clear()
    fetched = filtered(watched, {"tag": ["absent"]})
    assert (offsets_of(fetched), fetched.next_offset) == ([], 100)
    assert counts["zone.get"] == 0


@pytest.mark.parametrize(("bound", "value"), [("scan_bytes", 300), ("pages", 1), ("refs", 2)])
def test_scan_that_finds_nothing_moves_on_when_a_bound_is_reached(
    orders: Instance, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    bounds = scan._Bounds
    monkeypatch.setattr(scan, "_Bounds", lambda **given: bounds(**{**given, bound: value}))
    fetched = filtered(orders, {"type": ["none"]})
    assert not fetched.data
    assert 0 < fetched.next_offset < 80
    assert read_all(orders, ORDERS) == list(range(3, 80, 4))


@pytest.mark.parametrize(
    ("bytes_max", "work_max", "first"), [(1, 10**9, 4), (10**9, 3, 2), (10**9, 2, 1), (10**9, 1, 1)]
)
def test_scan_stops_inside_a_batch_if_it_must(
    orders: Instance, monkeypatch: pytest.MonkeyPatch, bytes_max: int, work_max: int, first: int
) -> None:
    monkeypatch.setattr(filtered_batch.FilterBudget.__init__, "__defaults__", (bytes_max, work_max))
    fetched = filtered(orders, ORDERS)
    assert fetched.next_offset == first
    assert read_all(orders, ORDERS) == list(range(3, 80, 4))


def test_undecodable_batch_is_sent_whole(orders: Instance) -> None:
    bad = bytearray(batch_of([("type", b"x")], [("type", b"x")]))
    bad[61:] = bytes(len(bad) - 61)
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    put(orders, bytes(bad), batch_of([("type", b"order")]))
    fetched = filtered(orders, ORDERS, 80)
    headers = [header for _, header in walk(fetched.data)]
    assert [(header.base_offset, header.record_count) for header in headers] == [(80, 2), (82, 1)]
    assert fetched.next_offset == 83


def test_batch_without_timestamps_is_filtered_and_keeps_them(instance: Instance) -> None:
    new_topic(instance)
    data = bytearray(batch_of([("type", b"x")], [("type", b"order")], time_ms=0))
    data[27:43] = (b"\xff" * 8) * 2
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    put(instance, bytes(data))
    [record] = decode(filtered(instance, ORDERS).data)
    assert (record.offset, record.timestamp) == (1, -1)


@given(records=st.lists(HEADERS, min_size=1, max_size=8), compression=st.sampled_from(Compression), data=st.data())
def test_filtered_batch_keeps_all_but_what_does_not_match(
    records: Sequence[Headers], compression: Compression, data: st.DataObject
) -> None:
    policy = data.draw(POLICIES)
    stored = encode([NewRecord(n, b"k%d" % n, b"v%d" % n, tuple(each)) for n, each in enumerate(records)], compression)
    [(_, header)] = walk(stored)
    found = filtered_batch.filter_batch(stored, header, parse_filter(policy), 0, filtered_batch.FilterBudget())
    kept = [] if found.data is None else list(decode(found.data))
    expected = [record for record in decode(stored) if is_match(policy, records[record.offset])]
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in kept] == [
        (r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in expected
    ]
    assert found.next_offset == len(records)
