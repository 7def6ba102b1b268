"""`python -m tools.prose`: count the words, long sentences and headless openers of docs, docstrings and comments.

The check fails (exit 1) when all docs together or all docstrings together exceed `HEADLESS_PER_1000_WORDS_MAX` or
`LONG_SENTENCES_PERCENT_MAX`. The docstrings of tests, and comments, are counted but not bounded. It also fails for each
word that betrays a foreign hand (`beside` for "next to"), wherever it is, and prints the sentence.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tools.passages import Kind, markdown_passages, python_passages
from tools.sentences import LONG_SENTENCE_WORDS, Sentence, sentences
from tools.sources import source_files

HEADLESS_PER_1000_WORDS_MAX = 1.0
LONG_SENTENCES_PERCENT_MAX = 5.0

ALL_DOCS = "docs, all"
ALL_DOCSTRINGS = "docstrings, all"
BOUNDED = (ALL_DOCS, ALL_DOCSTRINGS)

_FIGURES = {"bench", "performance", "performance.md"}  # where foreign words are only listed
_SHELVES = ("functions", "sdk", "glue_jobs", "infra")  # folders that hold packages


@dataclass(slots=True)
class Counts:
    """The counts of one scope. `headless` and `long` count sentences."""

    words: int = 0
    sentences: int = 0
    headless: int = 0
    long: int = 0

    def add(self, sentence: Sentence) -> None:
        """Count one more sentence."""
        self.words += sentence.words
        self.sentences += 1
        self.headless += sentence.is_headless
        self.long += sentence.is_long

    @property
    def headless_per_1000_words(self) -> float:
        """Headless openers per 1,000 words; 0 for a scope without words."""
        return 1000 * self.headless / self.words if self.words else 0.0

    @property
    def long_percent(self) -> float:
        """The share of long sentences in percent; 0 for a scope without sentences."""
        return 100 * self.long / self.sentences if self.sentences else 0.0

    @property
    def is_plain(self) -> bool:
        """Both shares are within their bounds."""
        return (
            self.headless_per_1000_words <= HEADLESS_PER_1000_WORDS_MAX
            and self.long_percent <= LONG_SENTENCES_PERCENT_MAX
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence that is headless, long, or has a foreign word, with the file that holds it."""

    path: Path
    sentence: Sentence

    def __str__(self) -> str:
        """The finding as one line that editors can follow: `file:line: defect: sentence`."""
        faults = ["headless"] * self.sentence.is_headless
        faults += [f"{self.sentence.words} words"] * self.sentence.is_long
        faults += [f'"{word}"' for word in self.sentence.foreign]
        return f"{self.path}:{self.sentence.line}: {', '.join(faults)}: {self.sentence.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The counts of each scope by its name, and the findings in the order of the files."""

    scopes: dict[str, Counts] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def foreign(self) -> list[Finding]:
        """The findings with a foreign word."""
        return [each for each in self.findings if each.sentence.foreign and not _FIGURES & {*each.path.parts}]

    @property
    def is_plain(self) -> bool:
        """No sentence has a foreign word. All docs together, and all docstrings together, are within the bounds."""
        return not self.foreign and all(self.scopes[name].is_plain for name in BOUNDED if name in self.scopes)


def report(root: Path, under: Sequence[str] = ()) -> Report:
    """Read the Markdown and Python files below `root`, or those of them that `under` names, and count."""
    result = Report()
    for path, kind, sentence in _sentences(root, under):
        for scope in scopes(path, kind):
            result.scopes.setdefault(scope, Counts()).add(sentence)
        if sentence.is_headless or sentence.is_long or sentence.foreign:
            result.findings.append(Finding(path=path, sentence=sentence))
    return result


def scopes(path: Path, kind: Kind) -> Iterable[str]:
    """The scopes that count a sentence of this file: its own, those that contain it, and the total."""
    in_tests = path.parts[0] == "tests"
    match kind:
        case Kind.TEXT:
            own = "ADRs" if "adr" in path.parts[:-1] else "docs but ADRs"
            return own, ALL_DOCS, "total"
        case Kind.DOCSTRING:
            return ("docstrings: tests", "total") if in_tests else (_package(path), ALL_DOCSTRINGS, "total")
        case Kind.COMMENT:
            return "comments: tests" if in_tests else "comments", "total"


def _package(path: Path) -> str:
    inner = path.parts[1:] if path.parts[0] in _SHELVES and len(path.parts) > 2 else path.parts
    return f"docstrings: {inner[0]}"


def _sentences(root: Path, under: Sequence[str]) -> Iterator[tuple[Path, Kind, Sentence]]:
    for suffix, passages in ((".md", markdown_passages), (".py", python_passages)):
        for path in source_files(root, suffix, under):
            for passage in passages((root / path).read_text(encoding="utf-8")):
                for sentence in sentences(passage):
                    yield path, passage.kind, sentence


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("under", nargs=-1)
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(), hidden=True)
@click.option("--list", "listed", is_flag=True, help="Print each headless, long or foreign sentence as file:line.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def main(under: tuple[str, ...], root: Path, listed: bool, as_json: bool) -> None:
    """Count headless openers and long sentences in docs, docstrings and comments, and fail above the bounds.

    UNDER names the files or folders to read. Without it, the check reads all files of the checkout.
    """
    result = report(root, under)
    if listed:
        for finding in result.findings:
            click.echo(finding)
    elif as_json:
        click.echo(json.dumps(_json(result), indent=2))
    else:
        _print(result)
        for finding in result.foreign:
            click.echo(finding)
    sys.exit(not result.is_plain)


def _json(result: Report) -> dict[str, dict[str, float]]:
    return {
        name: {
            "words": counts.words,
            "sentences": counts.sentences,
            "headless": counts.headless,
            "headless_per_1000_words": round(counts.headless_per_1000_words, 2),
            "long": counts.long,
            "long_percent": round(counts.long_percent, 2),
        }
        for name, counts in _in_order(result.scopes)
    }


def _print(result: Report) -> None:
    table = Table(title="Prose: headless openers and long sentences")
    table.caption = (
        f"Bounds: {HEADLESS_PER_1000_WORDS_MAX:g} headless opener per 1,000 words (‰); "
        f"{LONG_SENTENCES_PERCENT_MAX:g} % of sentences over {LONG_SENTENCE_WORDS} words. "
        "List them: python -m tools.prose --list"
    )
    table.add_column("scope", no_wrap=True)
    for heading in ("words", "sent.", "headless", "‰", "long", "%"):
        table.add_column(heading, justify="right")
    for name, counts in _in_order(result.scopes):
        style = None if name not in BOUNDED else "bold green" if counts.is_plain else "bold red"
        table.add_row(
            name,
            f"{counts.words:,}",
            f"{counts.sentences:,}",
            f"{counts.headless:,}",
            f"{counts.headless_per_1000_words:.2f}",
            f"{counts.long:,}",
            f"{counts.long_percent:.1f}",
            style=style,
            end_section=name in BOUNDED,
        )
    Console().print(table)


def _in_order(counts: dict[str, Counts]) -> list[tuple[str, Counts]]:
    """Docs, then docstrings of packages, then tests and comments, then the total; a sum follows its parts."""
    last = (ALL_DOCSTRINGS, "docstrings: tests", "comments", "comments: tests", "total")
    first = ("docs but ADRs", "ADRs", ALL_DOCS)

    def place(name: str) -> tuple[int, str]:
        return (first.index(name) - len(first) if name in first else last.index(name) + 1 if name in last else 0), name

    return sorted(counts.items(), key=lambda item: place(item[0]))


if __name__ == "__main__":
    main()
