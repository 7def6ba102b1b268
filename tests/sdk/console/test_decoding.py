import json

import pytest

from penstock.console.decoding import Decoded, View, cell, view_of, whole
from penstock_core.limits import CONSOLE_CELL_CHARACTERS_MAX, CONSOLE_VALUE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("data", "view", "kind", "text"),
    [
        (None, "auto", "null", "null"),
        (b"", "hex", "empty", "empty"),
        (b'{"a":1}', "auto", "json", '{\n  "a": 1\n}'),
        (b'{"a":1}', "text", "text", '{"a":1}'),
        (b"{a}", "json", "text", "{a}"),
        ("Zoë".encode(), "auto", "text", "Zoë"),
        (b"42", "auto", "text", "42"),
        (b"\x00\x01", "auto", "hex", "00000000  00 01" + 42 * " " + "  .."),
        (b"\xff", "text", "text", "\ufffd"),
        (b"[" * 100_000, "json", "text", "[" * 100_000),
        (b"[" + b"9" * 5_000 + b"]", "json", "text", "[" + "9" * 5_000 + "]"),
    ],
)
def test_value_is_shown_in_the_view_that_fits(data: bytes | None, view: View, kind: str, text: str) -> None:
    shown = whole(data, view)
    assert (shown.kind, shown.text.rstrip(), shown.is_cut) == (kind, text.rstrip(), False)


def test_hexadecimal_shows_every_byte() -> None:
    data = bytes(range(256))
    lines = whole(data, "hex").text.splitlines()
    assert bytes.fromhex("".join(line[10:57] for line in lines)) == data
    assert lines[4].endswith("@ABCDEFGHIJKLMNO")


def test_long_value_is_cut_and_says_so() -> None:
    shown = whole(b"x" * (CONSOLE_VALUE_CHARACTERS_MAX + 1))
    assert (len(shown.text), shown.is_cut) == (CONSOLE_VALUE_CHARACTERS_MAX, True)
    assert whole(b"\x00" * CONSOLE_VALUE_CHARACTERS_MAX).is_cut
    assert whole(json.dumps([0] * CONSOLE_VALUE_CHARACTERS_MAX).encode()).is_cut


@pytest.mark.parametrize("cut", range(1, 5))
def test_cell_that_cuts_a_character_is_still_text(cut: int) -> None:
    data = b"x" * cut + "🧨".encode() * CONSOLE_CELL_CHARACTERS_MAX
    shown = cell(data)
    assert (shown.kind, shown.is_cut, shown.size) == ("text", True, len(data))
    assert len(shown.text) <= CONSOLE_CELL_CHARACTERS_MAX


def test_cell_of_other_bytes_is_hexadecimal() -> None:
    assert cell(b"\xff\x00") == Decoded(kind="hex", text="ff 00", size=2)
    assert cell(b"ab", "hex").text == "61 62"
    assert cell(b"\xff", "text").text == "\ufffd"
    assert cell(None).kind == "null"


def test_unknown_view_is_the_one_that_fits() -> None:
    assert [view_of(each) for each in ("hex", "<b>", "")] == ["hex", "auto", "auto"]


def test_deep_array_is_cut_before_its_indents_fill_the_memory() -> None:
    depth = 200
    data = b"[" * depth + b"1," * 50_000 + b"1" + b"]" * depth
    shown = whole(data)
    assert (shown.kind, shown.is_cut, len(shown.text)) == ("json", True, CONSOLE_VALUE_CHARACTERS_MAX)
