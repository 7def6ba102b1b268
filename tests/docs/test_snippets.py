"""Every snippet of README, CONTRIBUTING and docs does what its page says, where the checkout's environment is active.

snippets.py says what fences there are; outputs.py how what they print is compared. The test runs each page's snippets
top to bottom, in a copy of the checkout with a local stack of its own (conftest.py). Of commands, only those that begin
with `make` are not run: the copy is set up and its stack is up already, and `make test` would run this test again.
That their targets exist is checked.
"""

import ast
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from localstack.places import CHECKOUT
from tests.docs.commands import bash_complaint, command_complaint, penstock_commands
from tests.docs.conftest import Clone
from tests.docs.outputs import differs
from tests.docs.sessions import Run, Session, bash_session, python_session
from tests.docs.snippets import Snippet, snippets_of

PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    CHECKOUT / "localstack" / "README.md",
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
SNIPPET_S_MAX = 180
MINUTES_S_MAX = 900

# Pages whose snippets take a quarter of a minute or more, but for README and the first tutorial.
TAKE_LONG = {
    *("CONTRIBUTING.md", "docs/tutorial/work-queue.md", "docs/contributing/history.md"),
    *(f"docs/how-to/{name}.md" for name in ("dead-letters", "doctor", "local-stack", "troubleshoot", "retries")),
}

_MAKE = re.compile(r"^(?:\w+=\S+ +)*make(?P<targets>(?: +[\w=./-]+)*) *(?:#.*)?$", re.MULTILINE)


def _name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


def _pages_to_run(*, minutes: bool) -> list[Path]:
    return [page for page in PAGES if any(("minutes" in marks) == minutes for marks in _marks_run(page))]


def _marks_run(page: Path) -> list[frozenset[str]]:
    """The marks of the page's snippets that are run; none if a test below finds that it has malformed ones."""
    try:
        return [snippet.marks for snippet in snippets_of(page) if snippet.is_run]
    except ValueError:
        return []


def _marked(pages: Iterable[Path]) -> list[ParameterSet]:
    return [
        pytest.param(page, id=_name(page), marks=[pytest.mark.minutes] if _name(page) in TAKE_LONG else [])
        for page in pages
    ]


@pytest.mark.stack
@pytest.mark.parametrize("page", _marked(_pages_to_run(minutes=False)))
def test_snippets_run_and_print_what_the_page_shows(page: Path, clone: Clone, tmp_path: Path) -> None:
    _run_page([snippet for snippet in snippets_of(page) if "minutes" not in snippet.marks], clone, tmp_path)


@pytest.mark.stack
@pytest.mark.minutes
@pytest.mark.parametrize("page", _pages_to_run(minutes=True), ids=_name)
def test_all_snippets_run_where_some_take_minutes(page: Path, clone: Clone, tmp_path: Path) -> None:
    _run_page(snippets_of(page), clone, tmp_path)


def test_fences_that_need_aws_or_the_wheel_are_well_formed() -> None:
    for snippet in chain.from_iterable(map(snippets_of, PAGES)):
        if "aws" in snippet.marks and snippet.language == "python":
            compile(snippet.text, snippet.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif snippet.marks & {"aws", "wheel"}:
            assert not bash_complaint(snippet.text), snippet.where
            complaints = [command_complaint(words) for words in penstock_commands(snippet.text)]
            assert not any(complaints), f"{snippet.where}: {complaints}"


def test_commands_are_those_of_an_active_environment() -> None:
    """One convention: `penstock` and `python`, as docs/README.md says at its top."""
    for page in PAGES:
        assert re.findall(r"\S*venv/bin/(?!activate\b)\S*", page.read_text()) == [], page


def test_pages_that_take_long_are_pages_that_there_are() -> None:
    assert {_name(page) for page in PAGES} >= TAKE_LONG


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for snippet in chain.from_iterable(map(snippets_of, PAGES)):
        for found in _MAKE.finditer(snippet.text) if snippet.language == "sh" else ():
            named = {word for word in found["targets"].split() if "=" not in word}
            assert named <= targets, f"{snippet.where}: the Makefile has no {named - targets}"


def _run_page(snippets: Iterable[Snippet], clone: Clone, folder: Path) -> None:
    clone.ready()
    sessions: dict[str, Session] = {}
    try:
        for snippet in snippets:
            if snippet.file is not None:
                (clone.folder / snippet.file).write_text(snippet.text)
            elif snippet.is_run:
                _check(snippet, _run(snippet, _session(snippet, sessions, clone), folder))
    finally:
        for session in sessions.values():
            session.close()


def _session(snippet: Snippet, sessions: dict[str, Session], clone: Clone) -> Session:
    if snippet.language not in sessions:
        if snippet.language == "sh":
            sessions["sh"] = bash_session(clone.folder, clone.active)
        else:
            sessions["python"] = python_session("python", clone.folder, clone.active)
    return sessions[snippet.language]


def _run(snippet: Snippet, session: Session, folder: Path) -> Run:
    file = folder / f"{snippet.page.stem}-{snippet.line}"
    text = _MAKE.sub("", snippet.text) if snippet.language == "sh" else snippet.text
    file.write_text("\n" * (snippet.line - 1) + text)  # so that an error names the page's line
    return session.run(file, MINUTES_S_MAX if "minutes" in snippet.marks else SNIPPET_S_MAX)


def _check(snippet: Snippet, done: Run) -> None:
    said = f"{snippet.where}\n{snippet.text}\n{done.failure}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    assert bool(done.failure) == ("fails" in snippet.marks), said
    if snippet.output is not None:
        difference = differs(snippet.output, done.stderr if "fails" in snippet.marks else done.stdout)
        assert difference is None, f"{difference}: {said}"
