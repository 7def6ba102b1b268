"""Items and keys: round trips, and the bytes that are stored today."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import items, keys, limits
from penstock_core.catch_up import CatchUpPass, Cursor, Progress
from penstock_core.ids import Offset, Partition, SegmentId, TopicId, TopicName, ZoneName, new_segment_id
from penstock_core.index import EMPTY_HEAD, Head, Page, appended
from penstock_core.keys import PartitionKey
from penstock_core.producer_state import ProducerSequence, ProducerState
from penstock_core.ref import Ref
from penstock_core.topic import Topic, TopicConfig
from penstock_core.zone_state import ZoneState, ZoneStates, ZoneStatus
from tests.core.test_producer_state import STATES
from tests.core.test_ref import GOLDEN, REFS

KEY = PartitionKey(TopicId("00ff"), Partition(7))
_OFFSETS = st.integers(0, limits.OFFSET_MAX).map(Offset)
_TIMES = st.integers(-1, 2**62)


@given(
    st.builds(
        Head,
        next_offset=_OFFSETS,
        log_start_offset=_OFFSETS,
        tail_base=_OFFSETS,
        tail=st.lists(REFS, max_size=16).map(tuple),
        rolled_max_timestamp_ms=_TIMES,
        rolled_bytes=st.integers(0, 2**62),
        settling_offset=_OFFSETS,
        settling_since_ms=_TIMES,
        producers=st.dictionaries(st.integers(0, 2**63 - 1), STATES, max_size=5),
        evictions=st.integers(0, 2**62),
    )
)
def test_head_survives_a_round_trip(head: Head) -> None:
    assert items.parse_head(items.head_item(KEY, head)) == head


@given(
    st.builds(
        Page,
        base_offset=_OFFSETS,
        refs=st.lists(REFS, max_size=16).map(tuple),
        max_timestamp_ms=_TIMES,
        rolled_bytes=st.integers(0, 2**62),
    )
)
def test_page_survives_a_round_trip(page: Page) -> None:
    assert items.parse_page(items.page_item(KEY, page)) == page


@given(st.integers(limits.BATCH_BYTES_MIN, limits.BATCH_BYTES_MAX))
def test_topic_survives_a_round_trip(max_batch_bytes: int) -> None:
    topic = Topic(
        name=TopicName("orders"),
        topic_id=TopicId("00ff"),
        partitions=3,
        created_at_ms=5,
        config=TopicConfig(max_batch_bytes=max_batch_bytes),
    )
    assert items.parse_topic(items.topic_item(topic)) == topic


def test_topic_item_leaves_defaults_to_the_code() -> None:
    topic = Topic(name=TopicName("orders"), topic_id=TopicId("00ff"), partitions=3, created_at_ms=5)
    assert items.topic_item(topic) == {
        "pk": {"S": "orders"},
        "sk": {"S": "topic"},
        "topic_id": {"S": "00ff"},
        "partitions": {"N": "3"},
        "created_at_ms": {"N": "5"},
        "config": {"M": {}},
    }


def test_head_item_is_what_is_stored_today() -> None:
    assert items.head_item(KEY, EMPTY_HEAD) == {
        "pk": {"S": "00ff#7"},
        "sk": {"S": "head"},
        "next_offset": {"N": "0"},
        "log_start_offset": {"N": "0"},
        "tail_base": {"N": "0"},
        "tail": {"L": []},
        "rolled_max_timestamp_ms": {"N": "-1"},
        "rolled_bytes": {"N": "0"},
        "settling_offset": {"N": "0"},
        "settling_since_ms": {"N": "0"},
        "under_replicated": {"N": "0"},
        "producers": {"M": {}},
        "evictions": {"N": "0"},
    }


def _full_head(producers: int, ref: Ref) -> Head:
    head = EMPTY_HEAD
    for _ in range(limits.TAIL_ROLL_REFS):
        head = appended(head, ref)
    return Head(
        next_offset=Offset(10**15),
        log_start_offset=Offset(10**15),
        tail_base=Offset(10**15),
        tail=head.tail,
        rolled_max_timestamp_ms=10**13,
        rolled_bytes=10**15,
        settling_offset=Offset(10**15),
        settling_since_ms=10**13,
        producers={each: ProducerState(epoch=0, last_sequence=0, written_s=0) for each in range(producers)},
        evictions=10**6,
    )


_LONG_KEY = PartitionKey(TopicId("f" * 20), Partition(999))
_OF_PRODUCER = replace(
    GOLDEN,
    sequence=ProducerSequence(producer_id=1, epoch=0, first_sequence=0, last_sequence=GOLDEN.offset_span - 1),
)


def test_head_without_producers_stays_within_one_write_unit_until_it_is_rolled() -> None:
    head = _full_head(0, GOLDEN)
    before_the_last = replace(head, tail=head.tail[1:])
    assert _item_bytes(items.head_item(_LONG_KEY, before_the_last)) <= 1024


@pytest.mark.parametrize("new_producers", [0, 15])
def test_full_head_stays_within_two_write_units_with_as_many_producers_as_it_keeps(new_producers: int) -> None:
    head = _full_head(limits.HEAD_PRODUCERS_KEPT + new_producers, _OF_PRODUCER)
    assert _item_bytes(items.head_item(_LONG_KEY, head)) <= 2048


@given(st.integers(0, 2**63 - 1))
def test_producer_name_survives_a_round_trip(producer_id: int) -> None:
    assert keys.parse_producer_name(keys.producer_name(producer_id)) == producer_id
    assert len(keys.producer_name(producer_id)) == 11


@given(STATES)
def test_producer_item_survives_a_round_trip(state: ProducerState) -> None:
    assert items.parse_producer(items.producer_item(KEY, 7, state)) == state


def test_producer_item_is_what_is_stored_today() -> None:
    assert items.producer_item(KEY, 7, ProducerState(epoch=1, last_sequence=2, written_s=3)) == {
        "pk": {"S": "00ff#7"},
        "sk": {"S": "producer#AAAAAAAAAAc"},
        "state": {"B": bytes.fromhex("00010000000200000003")},
        "expires_at_s": {"N": str(3 + 7 * 24 * 3_600)},
    }


def test_page_item_is_what_is_stored_today() -> None:
    page = Page(base_offset=Offset(10), refs=(GOLDEN,), max_timestamp_ms=5)
    item = items.page_item(KEY, page)
    assert item["sk"] == {"S": "page#00000000000000000013"}
    assert set(item) == {"pk", "sk", "base_offset", "refs", "max_timestamp_ms", "rolled_bytes"}
    assert items.page_item_key(KEY, page.end_offset) == {"pk": item["pk"], "sk": item["sk"]}


@given(_OFFSETS, _OFFSETS)
def test_page_keys_sort_as_their_offsets(one: Offset, other: Offset) -> None:
    assert (keys.page_key(one) < keys.page_key(other)) == (one < other)
    assert keys.page_key(one) < keys.PAGE_LAST


def test_deleted_topic_survives_a_round_trip_and_is_what_is_stored_today() -> None:
    topic = Topic(name=TopicName("orders"), topic_id=TopicId("00ff"), partitions=3, created_at_ms=5)
    note = items.note_of(topic, 9)
    item = items.deleted_topic_item(note)
    assert item == {
        "pk": {"S": "#deleted"},
        "sk": {"S": "00ff"},
        "name": {"S": "orders"},
        "partitions": {"N": "3"},
        "deleted_at_ms": {"N": "9"},
    }
    assert items.parse_deleted_topic(item) == note
    begun = items.note_of(topic, 9, is_being_created=True)
    assert items.deleted_topic_item(begun) == item | {"is_being_created": {"BOOL": True}}
    assert items.parse_deleted_topic(items.deleted_topic_item(begun)) == begun


def test_cursor_item_is_what_is_stored_today() -> None:
    assert items.cursor_item("sweep", "17") == {
        "pk": {"S": "#cursors"},
        "sk": {"S": "sweep"},
        "cursor": {"S": "17"},
    }


@given(st.integers(0, 253_402_300_799_999), st.binary(min_size=10, max_size=10))
def test_segment_key_is_parsed_back_and_has_one_of_the_prefixes(now_ms: int, chance: bytes) -> None:
    segment_id = new_segment_id(now_ms, chance)
    key = keys.segment_key(segment_id)
    assert keys.parse_segment_key(key) == segment_id
    assert key.startswith(keys.segment_prefix(keys.prefix_number(segment_id)))
    assert 0 <= keys.prefix_number(segment_id) < keys.SEGMENT_PREFIXES


@pytest.mark.parametrize(
    "key",
    [
        "",
        "probe/a",
        "01a0c4506c0000010203040506070809",
        "09/2026-09-21-14/01A0C4506C0000010203040506070809",
        "09/2026-09-21-15/01a0c4506c0000010203040506070809",
        "08/2026-09-21-14/01a0c4506c0000010203040506070809",
        "x/09/2026-09-21-14/01a0c4506c0000010203040506070809",
        "09/2026-09-21-14/01a0c4506c00000102030405060708",
        "09/2026-09-21-14/01a0c4506c0000010203040506070809/",
        "09/2026-09-21-14/01a0c4506c0000010203040506070809\n",
        "ff/9999-99-99-99/" + "f" * 32,
    ],
)
def test_parse_segment_key_knows_only_what_segment_key_makes(key: str) -> None:
    assert keys.parse_segment_key(key) is None


def test_segment_key_follows_from_the_id_alone() -> None:
    segment_id = new_segment_id(1_790_000_000_000, bytes(range(10)))
    assert keys.segment_key(segment_id) == "09/2026-09-21-14/01a0c4506c0000010203040506070809"


@given(st.integers(0, 2**48 - 1 - 10**13), st.binary(min_size=10, max_size=10))
def test_segment_ids_sort_by_time(now_ms: int, chance: bytes) -> None:
    assert new_segment_id(now_ms, chance) < new_segment_id(now_ms + 1, bytes(10))
    assert len(SegmentId(new_segment_id(now_ms, chance))) == 16


def _item_bytes(item: items.Item) -> int:
    """Size as DynamoDB counts it: names and values, 21 bytes at most a number, 3 + 1 each for a list or a map."""
    size = 0
    for name, value in item.items():
        [(kind, content)] = value.items()
        size += len(name)
        if kind == "L":
            size += 3 + sum(1 + len(element["B"]) for element in content)
        elif kind == "M":
            size += 3 + sum(1 + len(name) + len(element["B"]) for name, element in content.items())
        else:
            size += len(content) if kind in "SB" else len(content) // 2 + 2
    return size


def test_item_bytes_counts_a_ref() -> None:
    one: Ref = GOLDEN
    empty, full = items.head_item(KEY, EMPTY_HEAD), items.head_item(KEY, appended(EMPTY_HEAD, one))
    assert _item_bytes(full) - _item_bytes(empty) == 44


_STATES = st.builds(
    ZoneState,
    status=st.sampled_from(ZoneStatus),
    version=st.integers(0, 2**40),
    since_ms=_OFFSETS,
    reason=st.text(max_size=20),
)


@given(st.integers(0, 2**40), st.dictionaries(st.sampled_from("abc").map(ZoneName), _STATES))
def test_zone_states_survive_a_round_trip(version: int, by_zone: dict[ZoneName, ZoneState]) -> None:
    states = ZoneStates(version=version, by_zone=by_zone)
    assert items.parse_zone_states(items.zone_states_item(states)) == states


def test_zone_states_item_is_what_is_stored_today() -> None:
    state = ZoneState(status=ZoneStatus.TAKEN_OUT, version=4, since_ms=9, reason="disk work")
    assert items.zone_states_item(ZoneStates(version=5, by_zone={ZoneName("b"): state})) == {
        "pk": {"S": "#zones"},
        "sk": {"S": "states"},
        "version": {"N": "5"},
        "zones": {
            "M": {
                "b": {
                    "M": {
                        "status": {"S": "taken_out"},
                        "version": {"N": "4"},
                        "since_ms": {"N": "9"},
                        "reason": {"S": "disk work"},
                    }
                }
            }
        },
    }


def test_catch_up_pass_item_is_what_is_stored_today() -> None:
    current = CatchUpPass(
        zones={ZoneName("b"): 4},
        began_ms=9,
        saves=2,
        cursor=Cursor("orders", 3, 17),
        progress=Progress(refs=5, segments=4, bytes=3, failures=1, lost=2),
    )
    item = items.catch_up_pass_item(current)
    assert item == {
        "pk": {"S": "#zones"},
        "sk": {"S": "catch_up"},
        "saves": {"N": "2"},
        "began_ms": {"N": "9"},
        "zones": {"M": {"b": {"N": "4"}}},
        "cursor": {"L": [{"S": "orders"}, {"N": "3"}, {"N": "17"}]},
        "refs": {"N": "5"},
        "segments": {"N": "4"},
        "bytes": {"N": "3"},
        "failures": {"N": "1"},
        "lost": {"N": "2"},
    }
    assert items.parse_catch_up_pass(item) == current
    before_there_was_lost = {name: value for name, value in item.items() if name != "lost"}
    assert items.parse_catch_up_pass(before_there_was_lost).progress == replace(current.progress, lost=0)
