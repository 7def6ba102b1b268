"""The EventBridge event of a record."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.push.targets.bus_event import BusEvent, bus_event
from penstock_core.records.codec import Headers
from tests.support.push_records import NOW_MS, StoredRecord, push_record


def event_of(value: bytes | None = b"v", key: bytes | None = None, headers: Headers = ()) -> BusEvent:
    return bus_event(push_record(StoredRecord(15, NOW_MS, key, value, headers)))


def detail_of(value: bytes | None = b"v", key: bytes | None = None, headers: Headers = ()) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event_of(value, key, headers).detail)
    return found


def test_event_has_its_golden_text() -> None:
    headers = (("type", b"order"), ("type", None), ("n", b"\xff"))
    assert event_of(b'{"id": 1.10}', b"c1", headers) == BusEvent(
        detail_type="orders",
        detail='{"topic":"orders","partition":0,"offset":15,"timestamp_ms":1790000000000,"key":"c1",'
        '"headers":{"type":["order",null],"n":["/w=="]},"base64":["headers.n"],"value":{"id": 1.10}}',
    )


@pytest.mark.parametrize("value", [b'{"id": 1}', b' [1, "a"] ', '{"name": "grüße"}'.encode()])
def test_json_objects_and_arrays_stand_in_the_detail(value: bytes) -> None:
    assert detail_of(value)["value"] == json.loads(value)


@pytest.mark.parametrize("value", [b"7", b'"text"', b"true", b"plain", b"", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}'])
def test_any_other_text_is_a_text(value: bytes) -> None:
    assert detail_of(value)["value"] == value.decode()
    assert "base64" not in detail_of(value)


def test_bytes_that_are_no_text_are_base64_and_named() -> None:
    found = detail_of(b"{\xff", b"\xfe", (("a", b"x"), ("a", b"\xfd")))
    assert (found["key"], found["value"]) == ("/g==", base64.b64encode(b"{\xff").decode())
    assert found["headers"] == {"a": ["eA==", "/Q=="]}
    assert found["base64"] == ["key", "headers.a", "value"]


def test_null_stays_null() -> None:
    found = detail_of(None, None)
    assert (found["key"], found["value"], found["headers"]) == (None, None, {})


def test_long_topic_is_cut_in_the_detail_type_only() -> None:
    event = bus_event(push_record(StoredRecord(15), "t" * 249))
    assert event.detail_type == "t" * 128
    assert json.loads(event.detail)["topic"] == "t" * 249


def test_size_counts_bytes_of_source_type_and_detail() -> None:
    assert BusEvent(detail_type="é", detail="{}").size_bytes == len("penstock") + 2 + 2


octets = st.none() | st.binary()


@given(octets | st.from_regex(rb"[\[{].*", fullmatch=True), octets, st.lists(st.tuples(st.text(), octets)).map(tuple))
def test_any_record_has_a_detail_that_is_json(value: bytes | None, key: bytes | None, headers: Headers) -> None:
    found = detail_of(value, key, headers)
    assert (found["topic"], found["partition"], found["offset"]) == ("orders", 0, 15)
    assert found.keys() >= {"key", "value", "headers"}
