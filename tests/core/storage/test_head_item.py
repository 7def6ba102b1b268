import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.log.index import EMPTY_HEAD, Head, Jump, appended
from penstock_core.log.ref import Ref, encode_ref
from penstock_core.log.wake_up import PushEvent
from penstock_core.records.producer_state import NO_OWNER, OWNER_BYTES, ProducerSequence, ProducerState
from penstock_core.storage.head_item import head_item, head_key, parse_head, parse_push_event, parse_streamed_head
from penstock_core.storage.item import item_bytes
from tests.core.log.test_ref import GOLDEN, REFS
from tests.core.records.test_producer_state import STATES
from tests.core.storage.stored_values import KEY, OFFSETS, TIMES_MS

_WAITS = {"push_waiter": {"N": "1"}}


@given(
    st.builds(
        Head,
        next_offset=OFFSETS,
        log_start_offset=OFFSETS,
        tail_base=OFFSETS,
        tail=st.lists(REFS, max_size=16).map(tuple),
        rolled_max_timestamp_ms=TIMES_MS,
        rolled_bytes=st.integers(0, 2**62),
        noted_log_start=OFFSETS,
        log_start_noted_ms=TIMES_MS,
        producers=st.dictionaries(st.integers(0, 2**63 - 1), STATES, max_size=5),
        evictions=st.integers(0, 2**62),
        waiter_ms=st.none() | TIMES_MS,
        has_push_waiter=st.booleans(),
        jumps=st.lists(st.builds(Jump, start=OFFSETS, end=OFFSETS), max_size=3).map(tuple),
        restore=st.text(max_size=5),
    )
)
def test_head_survives_a_round_trip(head: Head) -> None:
    assert parse_head(head_item(KEY, head)) == head


def test_head_item_is_what_is_stored_today() -> None:
    assert head_item(KEY, EMPTY_HEAD) == {
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
        "push_waiter": {"N": "0"},
    }


def test_owners_are_attributes_beside_the_map_which_an_older_release_passes_over() -> None:
    state = ProducerState(epoch=1, last_sequence=2, written_ms=3, owner=b"ownerof7")
    item = head_item(KEY, replace(EMPTY_HEAD, producers={7: state, 8: replace(state, owner=NO_OWNER)}))
    assert item["o#AAAAAAAAAAc"] == {"B": b"ownerof7"}
    assert [name for name in item if name.startswith("o#")] == ["o#AAAAAAAAAAc"]
    left_behind = {**item, "producers": {"M": {}}}  # by an eviction of an older release
    assert parse_head(left_behind).producers == {}


def test_damaged_entry_is_refused_before_anybody_looks_it_up() -> None:
    item = head_item(KEY, EMPTY_HEAD) | {"producers": {"M": {"AAAAAAAAAAc": {"B": b"xy"}}}}
    with pytest.raises(PenstockError, match="a producer's entry of 2 bytes") as refused:
        parse_head(item)
    assert refused.value.code is ErrorCode.CORRUPT_SEGMENT


def test_head_of_an_older_release_has_no_push_waiter() -> None:
    item = head_item(KEY, EMPTY_HEAD)
    del item["push_waiter"]
    assert parse_head(item) == EMPTY_HEAD
    assert head_item(KEY, replace(EMPTY_HEAD, has_push_waiter=True))["push_waiter"] == {"N": "1"}


def test_head_item_stores_refs_producers_and_the_noted_log_start_under_their_names() -> None:
    head = replace(
        EMPTY_HEAD,
        tail=(GOLDEN,),
        noted_log_start=Offset(3),
        log_start_noted_ms=77,
        producers={7: ProducerState(epoch=1, last_sequence=2, written_ms=3)},
    )
    item = head_item(KEY, head)
    assert item["tail"] == {"L": [{"B": encode_ref(GOLDEN)}]}
    assert item["producers"] == {"M": {"AAAAAAAAAAc": {"B": bytes.fromhex("00010000000200000000000300000000")}}}
    assert (item["settling_offset"], item["settling_since_ms"]) == ({"N": "3"}, {"N": "77"})
    assert {"pk": item["pk"], "sk": item["sk"]} == head_key(KEY)


@given(st.dictionaries(st.integers(0, 2**63 - 1), STATES, max_size=3))
def test_streamed_head_is_the_stored_one_in_base64(producers: dict[int, ProducerState]) -> None:
    head = replace(appended(EMPTY_HEAD, GOLDEN), producers=producers)
    item = head_item(KEY, head)
    image = {
        **item,
        "tail": {"L": [{"B": base64.b64encode(each["B"]).decode()} for each in item["tail"]["L"]]},
        "producers": {
            "M": {name: {"B": base64.b64encode(each["B"]).decode()} for name, each in item["producers"]["M"].items()}
        },
        **{name: {"B": base64.b64encode(each["B"]).decode()} for name, each in item.items() if "B" in each},
    }
    assert parse_streamed_head(image) == (KEY, head)


def test_push_event_has_the_offset_of_the_update_that_took_the_push_waiter() -> None:
    old = replace(appended(EMPTY_HEAD, GOLDEN), has_push_waiter=True)
    new = appended(old, GOLDEN)
    record = {"Keys": head_key(KEY), "OldImage": head_item(KEY, old), "NewImage": head_item(KEY, new)}
    assert parse_push_event(record) == PushEvent(key=KEY, next_offset=new.next_offset)


def test_no_push_event_when_the_update_took_no_push_waiter() -> None:
    plain = head_item(KEY, replace(EMPTY_HEAD, waiter_ms=5))
    waits = head_item(KEY, replace(EMPTY_HEAD, has_push_waiter=True))
    assert parse_push_event({"Keys": head_key(KEY), "OldImage": plain, "NewImage": plain}) is None
    assert parse_push_event({"Keys": head_key(KEY), "OldImage": waits, "NewImage": waits}) is None
    assert parse_push_event({"Keys": head_key(KEY), "OldImage": plain, "NewImage": waits}) is None
    assert parse_push_event({"Keys": head_key(KEY), "OldImage": waits}) is None
    assert parse_push_event({"Keys": head_key(KEY), "NewImage": plain}) is None


@pytest.mark.parametrize(
    "record",
    [
        {"OldImage": {"push_waiter": None}, "NewImage": {}},
        {"OldImage": _WAITS, "NewImage": {"next_offset": {"N": "5"}}},
        {"Keys": {"pk": {"S": None}}, "OldImage": _WAITS, "NewImage": {"next_offset": {"N": "5"}}},
        {"Keys": {"pk": {"S": "t#0"}}, "OldImage": _WAITS, "NewImage": {"next_offset": {"S": "5"}}},
        {"Keys": {"pk": {"S": "t"}}, "OldImage": _WAITS, "NewImage": {"next_offset": {"N": "5"}}},
        {"Keys": {"pk": {"S": "t#0"}}, "OldImage": _WAITS, "NewImage": {}},
        {"Keys": {"pk": {"S": "t#0"}}, "OldImage": _WAITS, "NewImage": {"next_offset": {"N": "five"}}},
        {"Keys": {"pk": {"S": "t#0"}}, "OldImage": {"push_waiter": {"N": "yes"}}, "NewImage": {}},
    ],
)
def test_push_event_of_something_else_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_push_event(record)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


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
        noted_log_start=Offset(10**15),
        log_start_noted_ms=10**13,
        producers={
            each: ProducerState(epoch=0, last_sequence=0, written_ms=10**12, owner=bytes(OWNER_BYTES))
            for each in range(producers)
        },
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
    assert item_bytes(head_item(_LONG_KEY, before_the_last)) <= 1024


def test_full_head_stays_within_two_write_units_with_four_producers_fewer_than_it_keeps() -> None:
    head = _full_head(limits.HEAD_PRODUCERS_KEPT - 4, _OF_PRODUCER)
    assert item_bytes(head_item(_LONG_KEY, head)) <= 2048


def test_full_head_is_within_three_write_units_with_as_many_producers_as_it_has_before_an_eviction() -> None:
    head = _full_head(limits.HEAD_PRODUCERS_KEPT + limits.EVICTION_PRODUCERS_MIN - 1, _OF_PRODUCER)
    assert item_bytes(head_item(_LONG_KEY, head)) == 2714
