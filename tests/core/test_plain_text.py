"""Characters that a terminal obeys."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.text import check_label, escaped, escaped_json
from tests.support.refusals import refused

DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
OBEYED = [
    chr(number)
    for number in range(0x11_0000)
    if unicodedata.category(chr(number)) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(chr(number)) in DIRECTIONS
]


def test_every_character_that_a_terminal_obeys_is_escaped_and_no_other() -> None:
    for number in (*range(0x3_0000), *range(0xE_0000, 0xE_0200)):
        character = chr(number)
        assert (escaped(character) != character) == (character in OBEYED), hex(number)


def test_escape_tells_the_character() -> None:
    assert escaped("a\x1b[2J\x9b\u202e\n") == r"a\x1b[2J\x9b\u202e\x0a"
    assert escaped("a\tb\nc\r", kept="\t\n") == "a\tb\nc\\x0d"


@given(st.text(st.sampled_from([*OBEYED, "a", '"', "\\", "é", "€", "\U0001f600"])))
def test_escaped_json_means_the_same(text: str) -> None:
    for is_ascii in (True, False):
        document = escaped_json(json.dumps([text, {text: 1}], ensure_ascii=is_ascii))
        assert json.loads(document) == [text, {text: 1}]
        assert escaped(document) == document


@pytest.mark.parametrize("character", OBEYED)
def test_label_has_no_such_character(character: str) -> None:
    error = refused(ErrorCode.INVALID_REQUEST, lambda: check_label("reason", f"a{character}b"))
    assert error.message.startswith("reason='a")
    check_label("reason", "Wartung: Zone a, 20 % é €")
