"""The lines of hand-made functions, and the exit code that follows from them."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.shape import FILE_LINES_SHOWN, FOLDER_MODULES_SHOWN, FUNCTION_LINES_MAX, function_lines, main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def _function(lines: int) -> str:
    return "def long() -> None:\n" + "    pass\n" * (lines - 1)


def test_lines_of_a_function_do_not_include_its_decorators_and_docstring() -> None:
    source = '''\
@decorated
def outer(
    first: int,
) -> None:
    """One line

    and two more.
    """
    async def inner() -> None:
        pass
    return None
'''
    assert list(function_lines(source)) == [("outer", 2, 6), ("inner", 9, 2)]


def test_check_fails_when_a_function_is_too_long(checkout: Path) -> None:
    (checkout / "one.py").write_text(_function(FUNCTION_LINES_MAX))
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == 0
    (checkout / "two.py").write_text("\n" + _function(FUNCTION_LINES_MAX + 1))
    result = CliRunner().invoke(main, ["--root", str(checkout)])
    assert (result.exit_code, result.output) == (1, "two.py:2: long has 71 lines, 70 at most\n")


def test_large_files_and_folders_are_shown_and_do_not_fail_the_check(checkout: Path) -> None:
    (checkout / "room").mkdir()
    for number in range(FOLDER_MODULES_SHOWN + 1):
        (checkout / "room" / f"module_{number}.py").touch()
    (checkout / "large.py").write_text("LINE = 1\n" * (FILE_LINES_SHOWN + 1))
    result = CliRunner().invoke(main, ["--root", str(checkout)])
    assert (result.exit_code, result.output) == (0, "room/ holds 21 modules\nlarge.py has 401 lines\n")
