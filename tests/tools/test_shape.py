"""The lines of hand-made functions, the splinters of a hand-made tree, and the exit code that follows from them.

tests/long_tests.txt and slow_tests.txt name tests that there are.

Each mutant of the simulator meets the text that it changes: a moved line shows here, and not an hour later.
"""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from localstack.places import CHECKOUT
from tests.conftest import LISTS
from tests.simulation.mutants.mutant import Mutant, mutants
from tools import shape
from tools.shape import (
    FILE_LINES_SHOWN,
    FOLDER_MODULES_SHOWN,
    FUNCTION_LINES_MAX,
    MODULES_MAX,
    SPLINTER_LINES_MAX,
    SPLINTERS_MAX,
    function_lines,
    main,
    source_modules,
    splinters,
)
from tools.sources import source_files


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


def _tree(**modules: str) -> dict[Path, str]:
    """Modules of the folder `sdk/penstock/room`."""
    return {Path(f"sdk/penstock/room/{name}.py"): source for name, source in modules.items()}


@pytest.mark.parametrize(
    ("line", "lines", "is_splinter"),
    [
        ("from penstock.room.small import one\n", SPLINTER_LINES_MAX, True),
        ("from penstock.room import small\n", SPLINTER_LINES_MAX, True),
        ("import penstock.room.small\n", SPLINTER_LINES_MAX, True),
        ("def later() -> None:\n    from penstock.room.small import one\n", SPLINTER_LINES_MAX, True),
        ("from penstock.room.small import one\n", SPLINTER_LINES_MAX + 1, False),
        ("from penstock.other.small import one\n", SPLINTER_LINES_MAX, False),
    ],
)
def test_module_is_a_splinter_when_it_is_short_and_one_neighbour_imports_it(
    line: str, lines: int, is_splinter: bool
) -> None:
    modules = _tree(small="ONE = 1\n" * lines, user=line)
    small, user = modules
    assert splinters(modules) == ([(small, user)] if is_splinter else [])


def test_module_is_no_splinter_when_two_modules_or_another_folder_import_it() -> None:
    line = "from penstock.room.small import one\n"
    assert splinters(_tree(small="", user=line, other=line)) == []
    far = {Path("sdk/penstock/far.py"): line}
    assert splinters(_tree(small="") | far) == []


def test_generated_modules_and_packages_are_no_modules_of_source() -> None:
    ours = Path("sdk/penstock/ours.py")
    sources = {
        ours: "",
        Path("sdk/penstock/__init__.py"): "",
        Path("sdk/penstock/twin.py"): "# Generated from async_twin.py\n",
        Path("tests/test_ours.py"): "",
    }
    assert source_modules(sources).keys() == {ours}


def test_check_fails_when_there_are_more_splinters_or_modules_than_agreed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = checkout / "sdk" / "penstock"
    room.mkdir(parents=True)
    (room / "small.py").touch()
    (room / "user.py").write_text("from penstock.small import one\n")
    monkeypatch.setattr(shape, "SPLINTERS_MAX", 0)
    monkeypatch.setattr(shape, "MODULES_MAX", 1)
    result = CliRunner().invoke(main, ["--root", str(checkout)])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "sdk/penstock/small.py is a splinter: only user.py imports it",
        "there are 1 splinters, 0 at most",
        "there are 2 modules, 1 at most",
    ]


def test_totals_count_source_without_generated_modules_tests_docs_and_decisions(checkout: Path) -> None:
    for path, text in {
        "sdk/one.py": "ONE = 1\nTWO = 2\n",
        "sdk/__init__.py": "ONE = 1\n",
        "sdk/twin.py": "# Generated from async_twin.py\n",
        "bench/one.py": "ONE = 1\n",
        "tests/test_one.py": "\n" * 4,
        "docs/page.md": "\n" * 5,
        "docs/adr/0001.md": "five words are in here\n",
    }.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)
    result = CliRunner().invoke(main, ["--root", str(checkout), "--totals"])
    assert [line.split()[0] for line in result.output.splitlines()] == ["3", "4", "6", "1", "5"], result.output


def test_bounds_are_not_above_what_the_tree_holds() -> None:
    """Joins lower the bounds, so that no later change takes the room that they made."""
    root = Path(__file__).parents[2]
    modules = source_modules({path: (root / path).read_text() for path in source_files(root, ".py")})
    assert len(splinters(modules)) >= SPLINTERS_MAX - 3
    assert len(modules) >= MODULES_MAX - 25


def test_lists_name_tests_that_there_are() -> None:
    for line in {line for lines in LISTS.values() for line in lines}:
        path, _, name = line.partition("::")
        assert (f"def {name.partition('[')[0]}" if name else "def test_") in (CHECKOUT / path).read_text(), line


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_mutant_can_be_put_in(mutant: Mutant) -> None:
    with mutant.patched():
        pass
