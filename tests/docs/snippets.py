"""The fenced snippets of a Markdown page: what each is, and what the test does with it.

    ```sh                run, in one bash session per page
    ```python            run, in one Python session per page, as in `python -m asyncio`; `await` may stand anywhere
    ```python send.py    written to send.py, for a later ```sh fence to run
    ```sh aws            needs an AWS account: its syntax and its `penstock` options are checked
    ```python aws        needs an AWS account: its syntax is checked
    ```sh wheel          runs in an environment with the wheel alone: checked as those of AWS; tests/sdk/test_wheel.py
                         runs README's
    ```text              what the fence just above it prints, if nothing stands between; otherwise a drawing
    ```json, ```yaml, ```sql, ```mermaid  not run

Two more marks follow `sh` or `python`. `minutes`: the page runs only with `-m minutes`. `fails`: some command of the
fence must fail.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RUN = ("sh", "python")
SHOWN = ("text", "json", "yaml", "sql", "mermaid")
MARKS = ("aws", "wheel", "minutes", "fails")

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_FILE = re.compile(r"^[\w/-]+\.py$", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """One fence. `line` is the page's line, from 1, of its first line of content."""

    page: Path
    line: int
    language: str
    marks: frozenset[str]
    file: str | None
    text: str
    output: str | None  # the text that the page shows below it

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.marks & {"aws", "wheel"}

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class _Fence:
    first_line: int
    end_line: int
    info: str
    text: str


def snippets_of(page: Path) -> list[Snippet]:
    """The page's snippets, top to bottom. Raises ValueError for a fence that does not say what it is."""
    lines = page.read_text().splitlines()
    fences = list(_fences(page, lines))
    return [
        _snippet(page, fence, _output_of(fence, following, lines))
        for fence, following in zip(fences, [*fences, None][1:], strict=True)
    ]


def _fences(page: Path, lines: Sequence[str]) -> Iterator[_Fence]:
    opened: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(lines, start=1):
        found = _FENCE.match(line)
        if opened is None and found:
            opened = (number, found)
        elif opened is not None and found and found["ticks"] == opened[1]["ticks"] and not found["info"].strip():
            first, opening = opened
            content = (each.removeprefix(opening["indent"]) for each in lines[first : number - 1])
            yield _Fence(first + 1, number, opening["info"].strip(), "".join(f"{each}\n" for each in content))
            opened = None
    if opened is not None:
        raise ValueError(f"{page.name}:{opened[0]}: this fence does not end")


def _output_of(fence: _Fence, following: _Fence | None, lines: Sequence[str]) -> str | None:
    """The text fence that follows directly, with nothing but blank lines between."""
    if following is None or following.info != "text":
        return None
    between = lines[fence.end_line : following.first_line - 2]
    return following.text if not any(line.strip() for line in between) else None


def _snippet(page: Path, fence: _Fence, output: str | None) -> Snippet:
    language, *words = fence.info.split() or [""]
    files = [word for word in words if language == "python" and _FILE.match(word)]
    marks = frozenset(words) - set(files)
    if language not in (*RUN, *SHOWN) or not marks <= set(MARKS if language in RUN else ()) or len(files) > 1:
        raise ValueError(f"{page.name}:{fence.first_line - 1}: ```{fence.info} is none of the fences in snippets.py")
    return Snippet(
        page=page,
        line=fence.first_line,
        language=language,
        marks=marks,
        file=files[0] if files else None,
        text=fence.text,
        output=output,
    )
