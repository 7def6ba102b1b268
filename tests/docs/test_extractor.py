"""The snippets that are found in a page, and the sessions that run them."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.commands import bash_complaint, command_complaint, penstock_commands
from tests.docs.sessions import Session, bash_session, python_session, reader_environment
from tests.docs.snippets import Snippet, snippets_of

ANSWER_S_MAX = 60


def _snippets(folder: Path, text: str) -> list[Snippet]:
    page = folder / "page.md"
    page.write_text(text)
    return snippets_of(page)


def _run(session: Session, folder: Path, text: str) -> tuple[str, str]:
    file = folder / "snippet"
    file.write_text(text)
    done = session.run(file, ANSWER_S_MAX)
    return done.stdout, done.failure


@pytest.fixture
def environment() -> Mapping[str, str]:
    return reader_environment(os.environ)


def test_output_is_the_text_directly_below_a_snippet(tmp_path: Path) -> None:
    first, shown, second, drawing = _snippets(
        tmp_path, "```sh\nls\n```\n\n```text\na\n```\n```python\npass\n```\nA drawing:\n\n```text\nb\n```\n"
    )
    assert (first.output, second.output, drawing.output) == ("a\n", None, None)
    assert (first.line, second.line) == (2, 9)
    assert (first.is_run, shown.is_run, second.is_run) == (True, False, True)


def test_marks_and_files_are_read_from_the_fence(tmp_path: Path) -> None:
    cloud, file, indented = _snippets(
        tmp_path, "```sh aws\nls\n```\n```python send.py\npass\n```\n1. Do:\n   ```sh minutes\n   ls\n   ```\n"
    )
    assert not cloud.is_run
    assert file.file == "send.py"
    assert (indented.text, indented.marks) == ("ls\n", frozenset({"minutes"}))


@pytest.mark.parametrize("fence", ["```\nls\n```\n", "```bash\nls\n```\n", "```sh soon\nls\n```\n", "```sh\nls\n"])
def test_page_is_refused_when_a_fence_does_not_say_what_it_is(tmp_path: Path, fence: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md:1"):
        _snippets(tmp_path, fence)


def test_bash_keeps_variables_and_names_the_command_that_failed(tmp_path: Path, environment: Mapping[str, str]) -> None:
    with bash_session(tmp_path, environment) as session:
        assert _run(session, tmp_path, "color=blue\n") == ("", "")
        assert _run(session, tmp_path, 'echo "$color"\n') == ("blue\n", "")
        stdout, failure = _run(session, tmp_path, "cat nothing-there | sort\necho on\n")
    assert stdout == "on\n"
    assert "line 1" in failure


def test_python_keeps_names_awaits_and_names_the_exception(tmp_path: Path, environment: Mapping[str, str]) -> None:
    with python_session("python3", tmp_path, environment) as session:
        assert _run(session, tmp_path, "import asyncio\nnumber = 7\n") == ("", "")
        assert _run(session, tmp_path, "await asyncio.sleep(0)\nprint(number)\n") == ("7\n", "")
        assert _run(session, tmp_path, "number / 0\n") == ("", "ZeroDivisionError('division by zero')")


def test_snippet_without_an_end_is_told(tmp_path: Path, environment: Mapping[str, str]) -> None:
    with bash_session(tmp_path, environment) as session:
        (tmp_path / "snippet").write_text("while true; do :; done\n")
        with pytest.raises(TimeoutError):
            session.run(tmp_path / "snippet", timeout_s=0.5)


def test_environment_of_a_reader_has_no_virtual_environment() -> None:
    found = reader_environment(
        {"PATH": "/a/.venv/bin:/usr/bin", "VIRTUAL_ENV": "/a", "PYTHONPATH": "/a", "AWS_REGION": "x", "HOME": "/h"}
    )
    assert found == {"PATH": "/usr/bin", "HOME": "/h", "COLUMNS": "100", "TERM": "dumb"}


def test_commands_of_a_script_are_found_and_checked() -> None:
    script = "cat x | .venv/bin/penstock produce orders \\\n  --key-separator : && penstock topics make  # one\n"
    produce, make = penstock_commands(script)
    assert produce == ["produce", "orders", "--key-separator", ":"]
    assert command_complaint(produce) == ""
    assert "no command 'make'" in command_complaint(make)
    assert "no option --nothing" in command_complaint(["topics", "create", "orders", "--nothing", "3"])
    assert command_complaint(["jobs", "run", "sweep", "--emr", "--dry-run"]) == ""
    assert "no option --wet-run" in command_complaint(["jobs", "run", "sweep", "--emr", "--wet-run"])


def test_bash_says_what_is_no_script() -> None:
    assert bash_complaint("if true; then\n")
    assert not bash_complaint("if true; then ls; fi\n")
