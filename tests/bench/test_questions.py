import re
from importlib.util import find_spec
from pathlib import Path

from click.testing import CliRunner

from bench.__main__ import main
from bench.questions import PAGES, QUESTIONS

CHECKOUT = Path(__file__).parents[2]
_REPORTED = re.compile(r'^@reported\("(\w+)"\)$', re.MULTILINE)


def test_list_shows_each_question_with_its_command() -> None:
    output = CliRunner(env={"COLUMNS": "400"}).invoke(main, ["list"]).output
    assert all(f"python -m {each.command}" in output and each.asks in output for each in QUESTIONS)


def test_each_result_of_a_bench_belongs_to_one_question() -> None:
    sources = [path.read_text() for path in (CHECKOUT / "bench").rglob("*.py")]
    written = [name for source in sources for name in _REPORTED.findall(source)]
    listed = [name for each in QUESTIONS if each.module.startswith("bench.") for name in each.results]
    assert sorted(written) == sorted(listed)


def test_each_question_has_a_module_and_a_page() -> None:
    for each in QUESTIONS:
        assert find_spec(each.module) is not None or (CHECKOUT / each.command.split()[-1]).exists(), each.command
        assert each.page in PAGES, each.page
