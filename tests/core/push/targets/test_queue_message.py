"""The SQS message of a record: its body, its attributes, and its size."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.limits import QUEUE_ATTRIBUTES_MAX, QUEUE_BYTES_MAX
from penstock_core.push.targets.queue_message import QueueMessage, queue_message
from penstock_core.records.codec import Headers
from tests.support.push_records import NOW_MS, StoredRecord, push_record

PLACE: dict[str, str | int | bytes] = {
    "penstock-topic": "orders",
    "penstock-partition": 2,
    "penstock-offset": 15,
    "penstock-timestamp-ms": NOW_MS,
}


def message_of(
    value: bytes | None = b"v", key: bytes | None = None, headers: Headers = (), topic: str = "orders"
) -> QueueMessage:
    return queue_message(push_record(StoredRecord(15, NOW_MS, key, value, headers), topic, partition=2))


def test_message_has_the_value_as_its_body_and_tells_the_place() -> None:
    message = message_of(b'{"id": 1}', b"c1", (("type", b"order"),))
    assert message == QueueMessage(body='{"id": 1}', attributes=PLACE | {"penstock-key": "c1", "type": "order"})


@pytest.mark.parametrize(
    ("value", "body", "encoding"),
    [
        ("grüße\n\t🙂".encode(), "grüße\n\t🙂", None),
        (b"\xff\x00", base64.b64encode(b"\xff\x00").decode(), "base64"),
        (b"a\x00b", base64.b64encode(b"a\x00b").decode(), "base64"),  # UTF-8, but no text that SQS takes
        ("\ufffe".encode(), base64.b64encode("\ufffe".encode()).decode(), "base64"),
        (b"", "empty", "empty"),
        (None, "null", "null"),
        (b"null", "null", None),
    ],
)
def test_encoding_tells_how_to_read_the_body(value: bytes | None, body: str, encoding: str | None) -> None:
    message = message_of(value)
    assert (message.body, message.attributes.get("penstock-encoding")) == (body, encoding)


@pytest.mark.parametrize(("key", "attribute"), [(None, None), (b"", None), (b"c1", "c1"), (b"\xff", b"\xff")])
def test_key_is_an_attribute_if_sqs_can_carry_it(key: bytes | None, attribute: object) -> None:
    assert message_of(key=key).attributes.get("penstock-key") == attribute


@pytest.mark.parametrize(
    "name",
    ["", "a b", "ä", ".a", "a.", "a..b", "AWS.x", "amazon.x", "penstock-topic", "penstock-hops", "n" * 257, "a\n"],
)
def test_header_that_sqs_refuses_is_left_out(name: str) -> None:
    assert message_of(headers=((name, b"x"),)).attributes == PLACE


@pytest.mark.parametrize("name", ["type", "a.b-c_d", "AWSx", "n" * 256])
def test_header_is_an_attribute_under_its_own_name(name: str) -> None:
    assert message_of(headers=((name, b"\xff"),)).attributes == PLACE | {name: b"\xff"}


def test_header_without_a_value_and_a_second_one_of_a_name_are_left_out() -> None:
    headers = (("a", None), ("b", b""), ("c", b"1"), ("c", b"2"))
    assert message_of(headers=headers).attributes == PLACE | {"c": "1"}


def test_message_has_ten_attributes_at_most_and_the_first_headers_win() -> None:
    headers = tuple((f"h{number}", b"x") for number in range(9))
    found = message_of(b"\xff", b"c1", headers).attributes
    assert len(found) == QUEUE_ATTRIBUTES_MAX
    assert [name for name in found if name.startswith("h")] == ["h0", "h1", "h2", "h3"]


def test_header_that_has_no_room_is_left_out_and_a_later_one_that_has_stays() -> None:
    value = b"x" * (QUEUE_BYTES_MAX - 500)
    message = message_of(value, headers=(("large", b"y" * 1_000), ("small", b"y")))
    assert set(message.attributes) == {*PLACE, "small"}
    assert message.size_bytes <= QUEUE_BYTES_MAX


def test_size_counts_body_names_types_and_values() -> None:
    message = QueueMessage(body="é", attributes={"a": "bc", "n": 15, "b": b"xyz"})
    assert message.size_bytes == 2 + len("aStringbc") + len("nNumber15") + len("bBinaryxyz")


octets = st.none() | st.binary()


@given(octets, octets, st.lists(st.tuples(st.text(max_size=5), octets)).map(tuple))
def test_any_record_has_a_message_that_sqs_takes(value: bytes | None, key: bytes | None, headers: Headers) -> None:
    message = message_of(value, key, headers)
    assert len(message.body) >= 1
    assert len(message.attributes) <= QUEUE_ATTRIBUTES_MAX
    assert all(attribute not in ("", b"") for attribute in message.attributes.values())


def test_value_comes_back_from_the_body() -> None:
    value = bytes(range(256))
    assert base64.b64decode(message_of(value).body) == value


def test_trace_context_is_among_the_attributes_however_many_headers_come_before_it() -> None:
    headers = (*((f"h{number}", b"1") for number in range(QUEUE_ATTRIBUTES_MAX)), ("traceparent", b"00-1-2-01"))
    attributes = message_of(headers=headers).attributes
    assert len(attributes) == QUEUE_ATTRIBUTES_MAX
    assert attributes["traceparent"] == "00-1-2-01"
