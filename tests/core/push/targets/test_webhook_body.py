"""Bodies of HTTPS deliveries: their bytes, and what is no such body."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.ids import Offset, Partition, PartitionKey, SubscriptionId, TopicId
from penstock_core.push.targets.webhook_body import (
    WebhookBody,
    WebhookRecord,
    decode_webhook_body,
    encode_webhook_body,
    webhook_message_id,
)
from tests.support.refusals import refused

BODY = WebhookBody(
    subscription="packing",
    records=(
        WebhookRecord("orders", 2, 15, 1_790_000_000_000, b"c1", b'{"id": 1}', (("type", b"order"), ("x", None)), 1),
        WebhookRecord("orders", 2, 17, 1_790_000_000_001, None, None, (), 3),
    ),
)
GOLDEN = (
    b'{"subscription":"packing","records":['
    b'{"topic":"orders","partition":2,"offset":15,"timestamp_ms":1790000000000,"key":"YzE=","value":"eyJpZCI6IDF9",'
    b'"headers":[["type","b3JkZXI="],["x",null]],"attempt":1},'
    b'{"topic":"orders","partition":2,"offset":17,"timestamp_ms":1790000000001,"key":null,"value":null,'
    b'"headers":[],"attempt":3}]}'
)
SUBSCRIPTION = SubscriptionId("0b" * 10)
KEY = PartitionKey(TopicId("0a" * 10), Partition(2))
PLACES = st.tuples(st.sampled_from([KEY, KEY._replace(partition=Partition(3))]), st.integers(0, 20).map(Offset))

octets = st.none() | st.binary()
numbers = st.integers(0, 2**63 - 1)
headers = st.lists(st.tuples(st.text(), octets), max_size=3).map(tuple)
records = st.builds(WebhookRecord, st.text(), numbers, numbers, numbers, octets, octets, headers, numbers)
bodies = st.builds(WebhookBody, subscription=st.text(), records=st.lists(records, max_size=4).map(tuple))


def test_body_has_its_golden_bytes() -> None:
    assert encode_webhook_body(BODY) == GOLDEN
    assert decode_webhook_body(GOLDEN) == BODY


@given(bodies)
def test_body_comes_back_as_it_was(body: WebhookBody) -> None:
    data = encode_webhook_body(body)
    assert data.isascii()
    assert decode_webhook_body(data) == body


def test_decoder_passes_over_fields_that_it_does_not_know() -> None:
    document = json.loads(GOLDEN) | {"sent_by": "a later release"}
    document["records"][0]["leader_epoch"] = 7
    assert decode_webhook_body(json.dumps(document).encode()) == BODY


@pytest.mark.parametrize("name", ["topic", "partition", "offset", "timestamp_ms", "headers", "attempt"])
@pytest.mark.parametrize("value", [None, True, 1.5, {}])
def test_decoder_refuses_a_record_with_a_field_of_another_kind(name: str, value: Any) -> None:
    document = json.loads(GOLDEN)
    document["records"][1][name] = value
    error = refused(ErrorCode.INVALID_REQUEST, lambda: decode_webhook_body(json.dumps(document).encode()))
    assert f"records[1].{name}={value!r} is not a" in error.message


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b'{"subscription": NaN}', "it is not JSON"),
        (b"[]", "the body=[] is not an object"),
        (b'{"subscription": "a"}', "the body.records=None is not an array"),
        (b'{"subscription": 7, "records": []}', "the body.subscription=7 is not a text"),
        (b'{"subscription": "a", "records": [7]}', "records[0]=7 is not an object"),
        (GOLDEN.replace(b'"YzE="', b'"Yz"'), "records[0].key='Yz' is not base64"),
        (GOLDEN.replace(b'"YzE="', b"7"), "records[0].key=7 is not base64"),
        (GOLDEN.replace(b'"YzE="', b'"Yz E="'), "is not base64"),
        (GOLDEN.replace(b'"eyJpZCI6IDF9"', b'"\xc3\xa9"'), "records[0].value='é' is not base64"),
        (GOLDEN.replace(b'["x",null]', b'["x"]'), "records[0].headers[1]=['x'] is not a name and a value"),
        (GOLDEN.replace(b'["x",null]', b"[7,null]"), "records[0].headers[1]=[7, None] is not a name and a value"),
        (GOLDEN.replace(b'["x",null]', b'["x",7]'), "records[0].headers[1]=7 is not base64"),
    ],
)
def test_decoder_names_what_is_no_body(data: bytes, told: str) -> None:
    assert told in refused(ErrorCode.INVALID_REQUEST, lambda: decode_webhook_body(data)).message


def _message_id(*offsets: int, key: PartitionKey = KEY, subscription_id: SubscriptionId = SUBSCRIPTION) -> str:
    return webhook_message_id(subscription_id, [(key, Offset(offset)) for offset in offsets])


def test_message_id_is_its_golden_text() -> None:
    assert _message_id(5, 6, 9) == "msg_62618b9ebf591033d253915a27c1e5639c78a853"
    assert _message_id(5, 6, 9) == _message_id(9, 5, 6)


def test_message_id_differs_for_any_other_records() -> None:
    other = KEY._replace(partition=Partition(25))
    different = [
        _message_id(5, 6, 7),
        _message_id(5, 7),
        _message_id(5, 6),
        _message_id(6, 7),
        _message_id(5),
        _message_id(5, 6, 7, key=other),
        _message_id(5, 6, 7, key=KEY._replace(topic_id=TopicId("0c" * 10))),
        _message_id(5, 6, 7, subscription_id=SubscriptionId("0d" * 10)),
        webhook_message_id(SUBSCRIPTION, [(KEY, Offset(5)), (other, Offset(6)), (KEY, Offset(7))]),
        webhook_message_id(SUBSCRIPTION, [(other, Offset(5)), (KEY, Offset(6)), (other, Offset(7))]),
    ]
    assert len(set(different)) == len(different)


@given(st.sets(PLACES, min_size=1), st.sets(PLACES, min_size=1))
def test_message_ids_are_the_same_only_for_the_same_places(
    one: set[tuple[PartitionKey, Offset]], other: set[tuple[PartitionKey, Offset]]
) -> None:
    ids = [webhook_message_id(SUBSCRIPTION, places) for places in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)
