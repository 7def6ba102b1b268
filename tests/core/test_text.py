"""JSON as requests carry it."""

import pytest

from penstock_core.limits import JSON_DEPTH_MAX, JSON_NAMES_MAX
from penstock_core.text import bytes_text, counted, parse_json, why_no_json


def test_parse_json_gives_values_and_keeps_the_order_of_names() -> None:
    assert list(parse_json('{"b": [1, 2.5, null, "é"], "a": {"b": true}}').items()) == [
        ("b", [1, 2.5, None, "é"]),
        ("a", {"b": True}),
    ]


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": 0, "a": 1}}]', '{"a": 1, "\\u0061": 2}'])
def test_parse_json_refuses_a_name_that_stands_twice(text: str) -> None:
    with pytest.raises(ValueError, match="name 'a' twice"):
        parse_json(text)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "[" * 100_000, "9" * 5_000, "﻿{}"])
def test_parse_json_refuses_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_parse_json_bounds_the_names_of_an_object() -> None:
    names = [f'"{number}": 0' for number in range(JSON_NAMES_MAX + 1)]
    assert len(parse_json("{" + ", ".join(names[:-1]) + "}")) == JSON_NAMES_MAX
    with pytest.raises(ValueError, match=f"at most {JSON_NAMES_MAX}"):
        parse_json("{" + ", ".join(names) + "}")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_parse_json_bounds_the_depth_of_a_document(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return f"{opening * depth}1{closing * depth}"

    parse_json(nested(JSON_DEPTH_MAX))
    for depth in (JSON_DEPTH_MAX + 1, 965, 5_000):
        with pytest.raises(ValueError, match="nested"):
            parse_json(nested(depth))
    assert len(parse_json("[" + ",".join(["[[]]"] * 1_000) + "]")) == 1_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\ufeff{}", "it begins with a byte order mark: leave that out"),
        ("{", "Expecting property name enclosed in double quotes in line 1, column 2"),
        ("9" * 5_000, "a number has thousands of digits"),
        ("[" * 100_000, "it is nested deeper than"),
        ('{"a": 1, "a": 2}', "an object has the name 'a' twice"),
    ],
)
def test_refusal_speaks_of_the_text_and_not_of_python(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_json(text)
    assert why_no_json(caught.value).startswith(why)


def test_refusal_of_bytes_and_of_half_a_pair_names_them() -> None:
    with pytest.raises(UnicodeDecodeError) as bytes_refused:
        b"ab\xff".decode()
    assert why_no_json(bytes_refused.value) == "byte 0xff at position 2 is not UTF-8"
    with pytest.raises(UnicodeEncodeError) as pair_refused:
        "\ud83d".encode()
    assert why_no_json(pair_refused.value) == "'\\ud83d' is half of a surrogate pair, which is no text"


def test_counts_and_sizes_are_as_people_read_them() -> None:
    assert [counted(1, "record"), counted(2_000, "record"), counted(0, "batch")] == [
        "1 record",
        "2,000 records",
        "0 batches",
    ]
    assert [bytes_text(each) for each in (0, 1_023, 1_024, 5 * 2**20)] == ["0 B", "1023 B", "1.0 KiB", "5.0 MiB"]
