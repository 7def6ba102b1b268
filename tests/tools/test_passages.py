"""Each kind of text that a file can hold, and the passages that are taken from it."""

from collections.abc import Iterable
from textwrap import dedent

from tools.passages import CODE, Kind, Passage, markdown_passages, python_passages


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
