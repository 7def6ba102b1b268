"""Hand-made cases for the splitter and for the openers that it reports."""

import pytest

from tools.passages import CODE, Kind, Passage
from tools.sentences import LONG_SENTENCE_WORDS, Sentence, sentences


def _split(text: str, *, is_summary: bool = False) -> list[Sentence]:
    return list(sentences(Passage(line=7, text=text, kind=Kind.TEXT, is_summary=is_summary)))


def _texts(text: str) -> list[str]:
    return [sentence.text for sentence in _split(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One idea. Then another.", ["One idea.", "Then another."]),
        ("Is it there? Yes! It is.", ["Is it there?", "Yes!", "It is."]),
        ("Use a zone, e.g. Frankfurt, or two.", ["Use a zone, e.g. Frankfurt, or two."]),
        ("The head, i.e. The sequencer, orders.", ["The head, i.e. The sequencer, orders."]),
        ("As in S3, cf. AWS's page.", ["As in S3, cf. AWS's page."]),
        ("Pages, refs, etc. lie there.", ["Pages, refs, etc. lie there."]),
        ("It holds pages, refs, etc. The head holds more.", ["It holds pages, refs, etc.", "The head holds more."]),
        ("See append.py and keys.py. The rest is in log/.", ["See append.py and keys.py.", "The rest is in log/."]),
        ("It needs 3.11 or 4.0. Older ones fail.", ["It needs 3.11 or 4.0.", "Older ones fail."]),
        (f"Set {CODE}. {CODE} is ignored.", ["Set `…`.", "`…` is ignored."]),
        ("The module is pure. penstock.testing runs it.", ["The module is pure.", "penstock.testing runs it."]),
        ("It says so. poll() returns.", ["It says so.", "poll() returns."]),
        ("It failed (twice.) Then it worked.", ["It failed (twice.)", "Then it worked."]),
        ('It says "no." Then it stops.', ['It says "no."', "Then it stops."]),
        ("It waits ... and then goes on.", ["It waits ... and then goes on."]),
        ("Two promises: order and durability.", ["Two promises: order and durability."]),
        ("One thing is left: What has no owner.", ["One thing is left:", "What has no owner."]),
        ("no full stop", ["no full stop"]),
        ("— …", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]) -> None:
    assert _texts(text) == expected


def test_sentence_knows_the_line_where_it_begins() -> None:
    assert [(sentence.line, sentence.text) for sentence in _split("One begins\nhere. Two\nends. \nThree.")] == [
        (7, "One begins here."),
        (8, "Two ends."),
        (10, "Three."),
    ]


def test_words_are_counted_without_marks_that_stand_alone() -> None:
    assert [sentence.words for sentence in _split(f"The ref — {CODE} — has 5 bytes / page.")] == [7]


def test_sentence_is_long_when_it_has_more_words_than_the_bound() -> None:
    assert not _split("word " * LONG_SENTENCE_WORDS)[0].is_long
    assert _split("word " * (LONG_SENTENCE_WORDS + 1))[0].is_long


@pytest.mark.parametrize(
    "text",
    [
        "What is left is sent later.",
        "What has no owner is swept.",
        "Whatever it reads is checked.",
        "Who commits late is fenced.",
        "Whoever cannot read it may have made it.",
        "Whose lease it is decides.",
        "Which zones hold it is in the ref.",
        "Nobody writes a release.",
        "Others get the partitions.",
        "Anybody may read it.",
        "Of one that goes nothing more is handed out.",
        "Of those the newest counts.",
        "Of what is read nothing is kept.",
        "That which was written stays.",
        "That the head exists is the condition.",
        "Those that wait are woken.",
        "One that was sent again begins a session.",
        "Anything that fails is tried again.",
        "Everything it holds is dropped.",
        "Nothing that was swept is named later.",
        "None of what is read changes.",
        "All that a report shows.",
        "How many zones are in sync is a metric.",
        "How a record is stored.",
        "Why it is safe, whatever is slow:",
        "Whether the head is there is not known.",
        "Where there is no page, the tail is read.",
        "Where the object lies is in the ref.",
        "Where to read from, and how much.",
        "(What is left is sent later.)",
        "what was given",
    ],
)
def test_clause_as_opener_is_headless(text: str) -> None:
    assert [sentence.is_headless for sentence in _split(text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "What happens when a zone is out?",
        "Who may call it?",
        "When it was read, the ref is complete.",
        "Where a zone is out, the function writes two copies.",
        "Whether it succeeds or fails, the sender goes on.",
        "However long it takes, the lease holds.",
        "How to add a route.",
        "Other members get the partitions.",
        "One member gets them.",
        "All members get them.",
        "That member gets them.",
        "Nothing is lost.",
        "The sender keeps what is left.",
        "Whole batches are stored.",
    ],
)
def test_sentence_with_an_actor_is_not_headless(text: str) -> None:
    assert [sentence.is_headless for sentence in _split(text)] == [False]


@pytest.mark.parametrize("text", ["Where a record is stored.", "When the member beats next, None if never."])
def test_bare_clause_is_headless_when_it_summarizes_a_docstring(text: str) -> None:
    assert _split(text, is_summary=True)[0].is_headless
    assert not _split(f"A docstring. {text.replace('.', ', as said.')}", is_summary=True)[1].is_headless


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The page stands beside it.", ("stands", "beside")),
        ("Tell what became of it, as far as you shall know.", ("became of", "as far as", "shall")),
        ("A `*` stands for any text, and the stand-in stands still besides.", ()),
    ],
)
def test_foreign_words_are_found(text: str, expected: tuple[str, ...]) -> None:
    [sentence] = _split(text)
    assert sentence.foreign == expected
