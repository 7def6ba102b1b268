import re
from importlib.util import find_spec
from pathlib import Path

from click.testing import CliRunner

from bench.__main__ import main
from bench.harness.questions import QUESTIONS

CHECKOUT = Path(__file__).parents[3]
_REPORTED = re.compile(r'^@reported\("(\w+)"\)$', re.MULTILINE)


def test_list_shows_each_question_with_its_command() -> None:
    output = CliRunner(env={"COLUMNS": "400"}).invoke(main, ["list"]).output
    assert all(f"python -m {each.command}" in output and each.asks in output for each in QUESTIONS)


def test_each_result_of_a_bench_belongs_to_one_question() -> None:
    sources = [path.read_text() for path in (CHECKOUT / "bench").rglob("*.py")]
    written = [name for source in sources for name in _REPORTED.findall(source)]
    assert sorted(written) == sorted(name for each in QUESTIONS for name in each.results)


def test_each_question_has_a_module_and_a_page() -> None:
    for each in QUESTIONS:
        assert find_spec(each.module) is not None, each.command
        assert (CHECKOUT / f"docs/performance/{each.page}.md").exists(), each.page
