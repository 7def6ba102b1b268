from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import (
    EPOCH_BYTES,
    SEGMENT_ID_BYTES,
    TOPIC_ID_BYTES,
    Partition,
    PartitionKey,
    TopicId,
    member_name,
    new_segment_id,
    new_topic_id,
    parse_group_name,
    parse_member_id,
    parse_own_topic_name,
    parse_partition_key,
    parse_topic_name,
    parse_transactional_id,
    random_start,
    segment_time_ms,
)
from tests.support.refusals import refused

TIMES_MS = st.integers(0, 2**48 - 2)
ENTROPY = st.binary(min_size=10, max_size=10)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", "..")))
def test_names_of_allowed_characters_are_taken_as_they_are(name: str) -> None:
    for parse in (parse_topic_name, parse_group_name, parse_transactional_id):
        assert str(parse(name)) == name


LONG = "x" * (limits.NAME_LENGTH_MAX + 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "#zones", "ä", "a\n", LONG])
@pytest.mark.parametrize("parse", [parse_topic_name, parse_group_name, parse_transactional_id, parse_member_id])
def test_other_names_are_refused(parse: Callable[[str], str], name: str) -> None:
    refused(ErrorCode.INVALID_NAME, lambda: parse(name))


def test_member_ids_are_shorter_than_names() -> None:
    assert parse_member_id("x" * limits.MEMBER_ID_LENGTH_MAX)
    refused(ErrorCode.INVALID_NAME, lambda: parse_member_id("x" * (limits.MEMBER_ID_LENGTH_MAX + 1)))


def test_member_name_is_the_id_or_the_instance() -> None:
    assert member_name("m-1", None) == "m-1"
    assert member_name("m-1", "eu.7") == "=eu.7"
    for bad in [("a b", None), ("", None), ("x" * 101, None), ("m", "=x"), ("m", "")]:
        with pytest.raises(PenstockError) as caught:
            member_name(*bad)
        assert caught.value.code is ErrorCode.INVALID_NAME


def test_topic_id_is_its_random_bytes_in_hexadecimal() -> None:
    assert new_topic_id(bytes(range(TOPIC_ID_BYTES))) == "00010203040506070809"
    with pytest.raises(ValueError, match="takes 10 random bytes, got 9"):
        new_topic_id(bytes(9))


@given(TIMES_MS, ENTROPY)
def test_segment_ids_tell_their_time_and_sort_by_it(now_ms: int, entropy: bytes) -> None:
    segment_id = new_segment_id(now_ms, entropy)
    assert len(segment_id) == SEGMENT_ID_BYTES
    assert segment_time_ms(segment_id) == now_ms
    assert segment_id < new_segment_id(now_ms + 1, bytes(10))


def test_segment_id_takes_ten_random_bytes() -> None:
    with pytest.raises(ValueError, match="takes 10 random bytes, got 16"):
        new_segment_id(0, bytes(16))


@given(st.binary(min_size=EPOCH_BYTES, max_size=EPOCH_BYTES))
def test_random_start_is_a_positive_number_that_json_holds(entropy: bytes) -> None:
    assert 1 <= random_start(entropy) <= 2**48 < 2**53


@given(st.from_regex(r"[0-9a-f]{20}", fullmatch=True).map(TopicId), st.integers(0, 999).map(Partition))
def test_partition_key_survives_a_round_trip(topic_id: TopicId, partition: Partition) -> None:
    key = PartitionKey(topic_id, partition)
    assert parse_partition_key(str(key)) == key


@pytest.mark.parametrize("text", ["", "00ff", "00ff#x", "00ff#1#2"])
def test_text_of_another_form_is_no_partition_key(text: str) -> None:
    with pytest.raises(ValueError):
        parse_partition_key(text)


@pytest.mark.parametrize("name", ["_schemas", "__debezium-heartbeat.shop", "_connect-configs", "_audits", "_pen"])
def test_topic_of_a_caller_may_begin_with_an_underscore(name: str) -> None:
    assert parse_own_topic_name(name) == name


@pytest.mark.parametrize("name", ["_audit", "_penstock", "_penstock.x"])
def test_topic_of_the_service_is_no_callers_own(name: str) -> None:
    refused(ErrorCode.INVALID_NAME, lambda: parse_own_topic_name(name))
