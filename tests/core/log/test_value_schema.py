"""The places that a topic may name for the schema of its values."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import VALUE_SCHEMA_LENGTH_MAX
from penstock_core.log.topic import TopicConfig, alter_config
from penstock_core.log.value_schema import check_value_schema

LONGEST = "json:s3://bucket/" + "k" * (VALUE_SCHEMA_LENGTH_MAX - len("json:s3://bucket/"))


@pytest.mark.parametrize(
    "place",
    [
        "",
        "json:s3://bucket/lake/_schemas/order.json",
        "avro:s3://my.bucket-1/a b.avsc".replace(" ", "="),
        "protobuf:s3://bucket/order.desc",
        "protobuf:s3://bucket/order.desc#shop.Order",
        "registry:https://registry.example.com",
        "registry:https://registry.example.com:8081/path/#orders-value",
        "registry:http://127.0.0.1:8081##shop.Order",
        "registry:glue:orders-registry",
        "registry:glue:orders-registry#orders#shop.Order",
        LONGEST,
    ],
)
def test_place_of_a_schema_is_taken_as_it_is(place: str) -> None:
    assert check_value_schema(place) == place
    assert alter_config(TopicConfig(), {"value_schema": place}).value_schema == place


@pytest.mark.parametrize(
    "place",
    [
        "json",
        "json:order.json",
        "json:/etc/passwd",
        "json:file:///etc/passwd",
        "json:s3://bucket",
        "json:s3://bucket/",
        "json:s3://bucket/folder/",
        "json:s3://bucket/key#message",
        "xml:s3://bucket/key",
        "avro:https://host/order.avsc",
        "protobuf:s3://bucket/order.desc#a#b",
        "registry:",
        "registry:ftp://host",
        "registry:https://",
        "registry:https://user:word@host",
        "registry:https://host?a=1",
        "registry:https://host/ a",
        "registry:glue:",
        "registry:https://host\n",
        LONGEST + "k",
        5,
        True,
        ["json:s3://bucket/key"],
    ],
)
def test_other_text_is_refused_with_the_forms_that_there_are(place: object) -> None:
    with pytest.raises(PenstockError, match=r"value_schema=.*must be json:s3://bucket/key") as caught:
        alter_config(TopicConfig(), {"value_schema": place})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_null_takes_the_schema_away() -> None:
    assert alter_config(TopicConfig(value_schema=LONGEST), {"value_schema": None}).value_schema == ""
