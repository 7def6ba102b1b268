"""The messages of AppSync Events, good and hostile."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wake_ups.events import (
    Acknowledged,
    Endpoint,
    Refused,
    Subscribed,
    WakeUp,
    parse,
    parse_endpoint,
)
from penstock_core.limits import OFFSET_MAX, TOPIC_PARTITIONS_MAX

PLACE = {"realtime": "wss://r.example/event/realtime", "host": "h.example", "realtime_host": "r.example"}
WHOLE = {**PLACE, "namespace": "wake"}


def _data(event: Any) -> str:
    return json.dumps({"type": "data", "id": "1", "event": event})


def _event(**fields: Any) -> str:
    return json.dumps({"topic_id": "t", **fields})


def test_messages_are_read_as_aws_documents_them() -> None:
    assert parse('{"type":"connection_ack","connectionTimeoutMs":120000}') == [Acknowledged(120_000)]
    assert parse('{"type":"subscribe_success","id":"7"}') == [Subscribed("7")]
    assert parse('{"type":"ka"}') == []
    errors = [{"errorType": "UnauthorizedException"}]
    assert parse(json.dumps({"type": "subscribe_error", "id": "7", "errors": errors})) == [
        Refused("7", json.dumps(errors))
    ]
    assert parse(json.dumps({"type": "connection_error", "errors": errors})) == [Refused(None, json.dumps(errors))]


def test_wake_ups_of_one_and_of_many_partitions_are_read() -> None:
    one = _event(partition=3, next_offset=1207)
    many = _event(partitions={"3": 1207, "40": None})
    assert parse(_data(one)) == [WakeUp("t", 3, 1207)]
    assert parse(_data(many)) == [WakeUp("t", 3, 1207), WakeUp("t", 40, None)]
    assert len(parse(_data([one, many]))) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        "[" * 100_000,
        '{"type":"data"}',
        '{"type":"subscribe_success","id":7}',
        '{"type":["ka"]}',
        _data("not JSON"),
        _data(7),
        _data([None, 3, {}]),
        _data(_event()),
        _data(_event(partition=-1, next_offset=5)),
        _data(_event(partition="٣", next_offset=5)),
        _data(_event(partition=10**30, next_offset=5)),
        _data(_event(partition=0, next_offset=-1)),
        _data(_event(partition=0, next_offset=OFFSET_MAX + 1)),
        _data(_event(partition=0, next_offset=True)),
        _data(_event(partition=0, next_offset=1.5)),
        _data(_event(partition=0, next_offset="5")),
        _data(json.dumps({"topic_id": 5, "partition": 0, "next_offset": 5})),
        '{"type":"data","id":"1","event":"{\\"topic_id\\":\\"t\\",\\"partition\\":0,\\"next_offset\\":1e999}"}',
    ],
)
def test_message_that_makes_no_sense_is_no_event(text: str) -> None:
    assert parse(text) == []


def test_message_of_very_many_partitions_is_cut() -> None:
    many = _event(partitions={str(number): 1 for number in range(5 * TOPIC_PARTITIONS_MAX)})
    assert len(parse(_data(many))) == TOPIC_PARTITIONS_MAX


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "id",
                        "event",
                        "topic_id",
                        "partition",
                        "partitions",
                        "next_offset",
                        "connectionTimeoutMs",
                        "errors",
                    ]
                )
                | st.text(),
                inner,
            )
        ),
    )
)
def test_no_json_at_all_raises(value: Any) -> None:
    for text in (json.dumps(value), _data(json.dumps(value)), _data(value)):
        for event in parse(text):
            assert not isinstance(event, WakeUp) or event.next_offset is None or 0 <= event.next_offset <= OFFSET_MAX


@pytest.mark.parametrize(
    ("told", "meant"), [(0, 1_000), (-5, 1_000), (10**12, 900_000), ("x", 300_000), (True, 300_000)]
)
def test_absurd_timeout_is_bounded(told: Any, meant: int) -> None:
    assert parse(json.dumps({"type": "connection_ack", "connectionTimeoutMs": told})) == [Acknowledged(meant)]


def test_place_is_read_and_null_means_none() -> None:
    assert parse_endpoint(WHOLE) == Endpoint("wss://r.example/event/realtime", "h.example", "r.example", "wake")
    assert parse_endpoint({"realtime": None}) is None
    assert parse_endpoint({**WHOLE, "realtime": "ws://127.0.0.1:4566/event/realtime"}) is not None


@pytest.mark.parametrize(
    "place",
    [
        PLACE,
        {**WHOLE, "realtime": 5},
        {**WHOLE, "realtime": ""},
        {**WHOLE, "realtime": "ws://r.example/event/realtime"},  # anybody on the way could read the signed headers
        {**WHOLE, "realtime": "https://r.example"},
        {**WHOLE, "realtime_host": "r.example\r\nX: y"},
        {**WHOLE, "host": None},
    ],
)
def test_place_that_makes_no_sense_is_refused(place: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wake-ups are offered"):
        parse_endpoint(place)
