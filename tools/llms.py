"""`python -m tools.llms`: write llms.txt, the list of all pages for programs that read them (llmstxt.org).

Each page is Markdown in the repository and has one line: its title, its path, and the first sentence of its text. A
test compares the file with what this makes.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
FILE = ROOT / "llms.txt"
_HEAD = """# Penstock

> A message queue without servers in your own AWS account: each topic is a replayable log, as in Kafka, and a work
> queue, as with SQS. Clients: a Python SDK, HTTP, any Kafka client.

Every page is Markdown, at the path of its link. docs/openapi.json is the HTTP API for machines.
"""
_SECTIONS = (  # a title, and the folders below docs/ whose pages it lists, without those of a folder that comes earlier
    ("Start", ("..",)),
    ("Tutorials", ("tutorial",)),
    ("How-to guides", ("how-to",)),
    ("HTTP API", ("reference/http",)),
    ("Python", ("reference/python",)),
    ("Reference", ("reference", ".")),
    ("Explanation", ("explanation", "protocol")),
    ("Performance", ("performance",)),
    ("Optional: for contributors", ("contributing",)),
    ("Optional: decisions, by an index of their own", ("adr",)),
)
_SUMMARY_CHARACTERS_MAX = 160


def llms() -> str:
    """The text of llms.txt."""
    return "\n".join([_HEAD, *(line for title, folders in _SECTIONS for line in _section(title, folders))])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--check", is_flag=True, help="Write nothing: fail if llms.txt is another one.")
def main(check: bool) -> None:
    """Write llms.txt."""
    if check:
        sys.exit(0 if FILE.read_text(encoding="utf-8") == llms() else "llms.txt is not what the pages say: make pages")
    FILE.write_text(llms(), encoding="utf-8")


def _section(title: str, folders: tuple[str, ...]) -> Iterator[str]:
    paths = [path for folder in folders for path in sorted((ROOT / "docs" / folder).resolve().glob("*.md"))]
    if paths:
        yield f"## {title}\n"
        yield from (_line(path) for path in paths if path.parent.name != "adr" or path.name == "README.md")
        yield ""


def _line(path: Path) -> str:
    text = re.sub(r"^(```.*?^```|<!--.*?-->)", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert title, f"{path} has no title"
    shown = f"- [{title[1]}]({path.relative_to(ROOT)})"
    summary = _first_sentence(text[title.end() :])
    return f"{shown}: {summary}" if summary else shown


def _first_sentence(text: str) -> str:
    """The first sentence of the page's first paragraph, without links; empty if the page begins otherwise."""
    paragraph = next((each for each in re.split(r"\n\s*\n", text) if re.match(r"[A-Z`]", each.strip())), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    sentence = re.split(r"(?<=[.!?])\s", plain)[0]
    told = re.sub(r"^After (reading )?this (page|hour),? (you (can|know) )?", "", sentence)
    told = told[:1].upper() + told[1:]
    return told if len(told) <= _SUMMARY_CHARACTERS_MAX else f"{told[:_SUMMARY_CHARACTERS_MAX].rsplit(' ', 1)[0]} …"


if __name__ == "__main__":
    main()
