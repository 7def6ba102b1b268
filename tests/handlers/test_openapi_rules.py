"""The document tells the rules of the service: a name or a choice is valid in one if it is in the other."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupConfig
from penstock_core.groups.topic_patterns import check_pattern
from penstock_core.ids import parse_member_id, parse_topic_name
from penstock_core.log.topic import TopicConfig, alter_config
from penstock_core.zones.zone_state import parse_acks
from penstock_handlers.openapi.rules import ACKS, MEMBER_ID, NAME, PLACE, TOPIC_PATTERN
from tests.handlers.service import Service

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
TEXTS = st.one_of(
    st.text(max_size=6), st.from_regex(r"[A-Za-z0-9._*-]{0,4}"), st.sampled_from([".", "..", "...", "a\n"])
)


def _is_valid(schema: dict[str, Any], text: str) -> bool:
    return len(text) <= schema["maxLength"] and re.search(schema["pattern"].replace("$", r"\Z"), text) is not None


def _is_taken(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except PenstockError:
        return False
    return True


@given(TEXTS)
def test_names_and_patterns_of_the_document_are_those_of_the_service(text: str) -> None:
    assert _is_valid(NAME, text) == _is_taken(parse_topic_name, text)
    assert _is_valid(MEMBER_ID, text) == _is_taken(parse_member_id, text)
    assert _is_valid(TOPIC_PATTERN, text) == _is_taken(check_pattern, text)


@pytest.mark.parametrize(("schema", "parse"), [(NAME, parse_topic_name), (MEMBER_ID, parse_member_id)])
def test_longest_name_of_the_document_is_that_of_the_service(schema: dict[str, Any], parse: Any) -> None:
    longest = "x" * schema["maxLength"]
    assert _is_taken(parse, longest)
    assert not _is_taken(parse, longest + "x")


def test_choices_of_the_document_are_those_of_the_service() -> None:
    assert all(parse_acks(text) for text in ACKS["enum"])
    assert SCHEMAS["Error"]["properties"]["code"]["enum"] == sorted(code.name for code in ErrorCode)


@pytest.mark.parametrize("place", ["earliest", "latest", "0", "7", "07", "-1", "1_0", "", "soon", "9" * 20])
def test_places_of_the_document_are_those_of_the_service(service: Service, place: str) -> None:
    service.create("orders")
    answered = service.call("GET", "/v1/topics/orders/offsets", timestamp=place).status == 200
    assert answered or re.fullmatch(PLACE["pattern"], place) is None
    assert not answered or place == "07" or re.fullmatch(PLACE["pattern"], place)


@pytest.mark.parametrize("config", [TopicConfig(), GroupConfig()])
def test_every_setting_stands_in_the_document(config: object) -> None:
    names = set(getattr(type(config), "__slots__", ()))
    schema = SCHEMAS["CreateTopic" if isinstance(config, TopicConfig) else "AlterGroup"]
    assert set(schema["properties"]["config"]["properties"]) == names


@pytest.mark.parametrize("name", SCHEMAS["CreateTopic"]["properties"]["config"]["properties"])
def test_bounds_of_topic_settings_are_those_of_the_service(name: str) -> None:
    allowed = SCHEMAS["CreateTopic"]["properties"]["config"]["properties"][name]["anyOf"]
    for value in (each[bound] for each in allowed for bound in ("minimum", "maximum", "const") if bound in each):
        alter_config(TopicConfig(), {name: value})
    for bound, step in (("minimum", -1), ("maximum", 1)):
        for value in (each[bound] + step for each in allowed if bound in each):
            with pytest.raises(PenstockError):
                alter_config(TopicConfig(), {name: value})


@pytest.mark.parametrize(
    ("record", "is_taken"),
    [
        ({"value": None}, True),
        ({"value_base64": "YQ=="}, True),
        ({}, False),
        ({"value": "a", "value_base64": "YQ=="}, False),
        ({"value": "a", "key": "k", "key_base64": "YQ=="}, False),
        ({"value_base64": "YQ"}, False),
    ],
)
def test_record_gives_one_value_and_one_key_at_most(service: Service, record: dict[str, Any], is_taken: bool) -> None:
    service.create("orders")
    answer = service.call("POST", "/v1/topics/orders/records", {"records": [record]})
    schema = SCHEMAS["Record"]
    is_valid = sum(set(each["required"]) <= record.keys() for each in schema["oneOf"]) == 1
    is_valid &= not set(schema["not"]["required"]) <= record.keys()
    if "value_base64" in record:
        is_valid &= (
            re.search(schema["properties"]["value_base64"]["anyOf"][0]["pattern"], record["value_base64"]) is not None
        )
    assert (answer.status == 200, is_valid) == (is_taken, is_taken)


def test_deletions_answer_without_a_body_and_numbers_have_whole_bounds() -> None:
    texts = json.dumps(DOCUMENT)
    assert '"ge":' not in texts
    assert "e+18" not in texts
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            assert "content" not in operation["responses"].get("204", {})
    assert SCHEMAS["Record"]["properties"]["timestamp_ms"]["anyOf"][0]["maximum"] == limits.OFFSET_MAX


def test_every_name_in_a_path_or_a_query_has_its_rule() -> None:
    parameters = [
        parameter
        for operations in DOCUMENT["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    ]
    texts = {each["name"]: json.dumps(each["schema"]) for each in parameters if "string" in json.dumps(each["schema"])}
    free = {name for name, schema in texts.items() if "pattern" not in schema and "enum" not in schema}
    assert free == {"after", "filter", "zone", "principal"}  # a filter is JSON of its own, with its own errors
