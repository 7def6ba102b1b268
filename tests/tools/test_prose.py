"""The counts of a small checkout, and the exit code that follows from them.

Hand-made cases for the splitter and for the openers that it reports.

Each kind of text that a file can hold, and the passages that are taken from it.
"""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from tools.passages import CODE, Kind, Passage, markdown_passages, python_passages
from tools.prose import main, report, scopes
from tools.sentences import LONG_SENTENCE_WORDS, Sentence, sentences


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def _write(checkout: Path, name: str, text: str) -> None:
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("README.md", Kind.TEXT, ["docs but ADRs", "docs, all", "total"]),
        ("docs/adr/0001-pages.md", Kind.TEXT, ["ADRs", "docs, all", "total"]),
        (
            "functions/penstock_core/log/ref.py",
            Kind.DOCSTRING,
            ["docstrings: penstock_core", "docstrings, all", "total"],
        ),
        ("sdk/penstock/prices.py", Kind.DOCSTRING, ["docstrings: penstock", "docstrings, all", "total"]),
        ("glue_jobs/sweep.py", Kind.DOCSTRING, ["docstrings: glue_jobs", "docstrings, all", "total"]),
        ("app.py", Kind.DOCSTRING, ["docstrings: app.py", "docstrings, all", "total"]),
        ("tests/core/test_ref.py", Kind.DOCSTRING, ["docstrings: tests", "total"]),
        ("tests/core/test_ref.py", Kind.COMMENT, ["comments: tests", "total"]),
        ("infra/penstock_cdk/penstock.py", Kind.COMMENT, ["comments", "total"]),
    ],
)
def test_sentence_counts_in_its_scope_in_the_sum_and_in_the_total(path: str, kind: Kind, expected: list[str]) -> None:
    assert list(scopes(Path(path), kind)) == expected


def test_report_counts_words_sentences_and_findings(checkout: Path) -> None:
    _write(checkout, "docs/page.md", "What is left is sent later. The sender sends it.\n")
    _write(checkout, "infra/penstock_cdk/penstock.py", f'"""The stack {"and " * 40}more."""\n')
    result = report(checkout)
    docs, docstrings = result.scopes["docs, all"], result.scopes["docstrings, all"]
    assert (docs.words, docs.sentences, docs.headless, docs.long) == (10, 2, 1, 0)
    assert (docstrings.sentences, docstrings.headless, docstrings.long) == (1, 0, 1)
    assert docs.headless_per_1000_words == 100
    assert docstrings.long_percent == 100
    assert [str(finding).split(": ")[:2] for finding in result.findings] == [
        ["docs/page.md:1", "headless"],
        ["infra/penstock_cdk/penstock.py:1", "43 words"],
    ]


@pytest.mark.parametrize(
    ("name", "headless", "plain", "passes"),
    [
        ("README.md", 1, 400, True),
        ("README.md", 1, 100, False),
        ("docs/adr/0001-pages.md", 1, 100, False),
        ("tests/test_stack.py", 5, 0, True),
        ("sdk/penstock/prices.py", 1, 100, False),
    ],
)
def test_check_fails_when_docs_or_docstrings_exceed_a_bound(
    checkout: Path, name: str, headless: int, plain: int, passes: bool
) -> None:
    text = "What is left is sent. " * headless + "One sender sends. " * plain
    _write(checkout, name, text if name.endswith(".md") else f'"""{text}"""\n')
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == (0 if passes else 1)


def test_check_fails_when_too_many_sentences_are_long(checkout: Path) -> None:
    _write(checkout, "README.md", "The sender sends it. " * 18 + "The sender " + "sends " * 40 + "it.")
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == 1
    _write(checkout, "README.md", "The sender sends it. " * 19 + "The sender " + "sends " * 40 + "it.")
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == 0


@pytest.mark.parametrize("name", ["README.md", "sdk/penstock/prices.py", "tests/test_stack.py"])
def test_check_fails_for_a_foreign_word_and_prints_its_sentence(checkout: Path, name: str) -> None:
    text = "The sender sends it. " * 99 + "The retry stands beside the send."
    _write(checkout, name, text if name.endswith(".md") else f'"""{text}"""\n')
    answer = CliRunner().invoke(main, ["--root", str(checkout)])
    assert answer.exit_code == 1
    assert f'{name}:1: "stands", "beside": The retry stands beside the send.' in answer.output


def test_json_holds_the_counts_of_each_scope(checkout: Path) -> None:
    _write(checkout, "README.md", "Nobody knows. The reader does.\n")
    _write(checkout, "other/page.md", "Left out.\n")
    answer = CliRunner().invoke(main, ["--root", str(checkout), "--json", "README.md"])
    counts = {"words": 5, "sentences": 2, "headless": 1, "headless_per_1000_words": 200.0, "long": 0, "long_percent": 0}
    assert json.loads(answer.output) == {"docs but ADRs": counts, "docs, all": counts, "total": counts}


def test_files_that_git_ignores_are_left_out(checkout: Path) -> None:
    _write(checkout, ".gitignore", "build/\n")
    _write(checkout, "build/page.md", "Nobody reads this.\n")
    _write(checkout, "page.md", "You read this.\n")
    assert report(checkout).scopes["total"].sentences == 1


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


def _markdown(source: str) -> list[tuple[int, str]]:
    return _lines(markdown_passages(dedent(source)))


def _lines(passages: Iterable[Passage]) -> list[tuple[int, str]]:
    return [(passage.line, " ".join(passage.text.split())) for passage in passages]


def test_markdown_passages_leave_out_what_is_no_prose() -> None:
    source = """\
        ---
        name: front matter
        ---
        # A heading
        A paragraph
        of two lines.
        ```sh
        make run # code. Not prose.
        ```
        | a | table |
        |---|---|
        <!-- a comment
        of two lines -->
        Behind it.

            indented code

        [target]: https://example.org/a.b
        ```
        A fence that nothing closes.
        """
    assert _markdown(source) == [(5, "A paragraph of two lines."), (14, "Behind it.")]


def test_each_list_item_is_a_passage_of_its_own() -> None:
    source = """\
        The steps:
        - first, with a line
          that goes on;
        * second

          with a paragraph.
        1. One.
        2) Two.
            - Inner.
        """
    assert _markdown(source) == [
        (1, "The steps:"),
        (2, "first, with a line that goes on;"),
        (4, "second"),
        (6, "with a paragraph."),
        (7, "One."),
        (8, "Two."),
        (9, "Inner."),
    ]


def test_markup_is_removed_and_inline_code_is_one_word() -> None:
    source = """\
        **Context.** A *small* `append(a. B)` and [a link
        of two lines](docs/page.md#a.b), ![picture](p.png) <br/> of ``two `ticks` `` and snake_case_name_here.
        > **Note** Quoted.
        """
    assert _markdown(source) == [
        (
            1,
            f"A small {CODE} and a link of two lines, of {CODE} and snake_case_name_here. Note Quoted.",
        )
    ]


def test_python_passages_are_docstrings_and_comments() -> None:
    source = dedent('''\
        #!/usr/bin/env python3
        """The module.

        It has two paragraphs.

            a = drawing

        0    3     bytes   in columns
        - an item: `code`
        """

        LIMIT = 3
        """A docstring below an attribute."""

        # A comment block
        # of two lines.
        # ruff: noqa
        def call() -> None:  # behind code
            """One line."""
            text = """no docstring"""
            # Alone.
        ''')
    passages = list(python_passages(source))
    assert [(p.line, p.kind, p.is_summary, " ".join(p.text.split())) for p in passages] == [
        (2, Kind.DOCSTRING, True, "The module."),
        (4, Kind.DOCSTRING, False, "It has two paragraphs."),
        (9, Kind.DOCSTRING, False, f"an item: {CODE}"),
        (13, Kind.DOCSTRING, True, "A docstring below an attribute."),
        (19, Kind.DOCSTRING, True, "One line."),
        (15, Kind.COMMENT, False, "A comment block of two lines."),
        (18, Kind.COMMENT, False, "behind code"),
        (21, Kind.COMMENT, False, "Alone."),
    ]
