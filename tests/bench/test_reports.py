"""The way of a bench's figures: from a command to the terminal, to JSON and to a file."""

from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bench.report import recording
from bench.report.recording import Report, reported
from bench.report.result import Row, load_results, parse_result
from bench.report.tables import COLUMNS_MAX, heading, to_markdown

CHECKOUT = Path(__file__).parents[2]


@click.command()
@reported("example")
@click.option("--rounds", default=3)
@click.option("--breaks", is_flag=True)
def example(report: Report, rounds: int, breaks: bool) -> None:
    report.show("rates", [{"request": "produce", "records_per_s": 1_000 * rounds}])
    report.judge(holds=not breaks)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bench" / "results"
    folder.mkdir(parents=True)
    monkeypatch.setattr(recording, "RESULTS_FOLDER", folder)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(example, arguments)


def test_json_is_the_result() -> None:
    result = parse_result(run("--json", "--rounds", "2").stdout)
    assert result.name == "example"
    assert result.parameters == {"rounds": 2, "breaks": False}
    assert result.find("rates", {"request": "produce"}, "records_per_s") == 2_000
    assert result.machine.cores > 0


def test_table_is_printed_when_no_json_is_asked() -> None:
    assert "records/s" in run().output


def test_file_is_written_when_asked(folder: Path) -> None:
    assert run("--write").exit_code == 0
    assert load_results(folder)["example"].parameters["rounds"] == 3


def test_result_says_so_when_the_bench_breaks_its_promise(folder: Path) -> None:
    assert run("--write", "--breaks").exit_code == 1
    assert recording.BROKEN in load_results(folder)["example"].conditions
    assert run("--write").exit_code == 0
    assert recording.BROKEN not in load_results(folder)["example"].conditions


def test_find_refuses_when_no_row_matches() -> None:
    result = parse_result(run("--json").stdout)
    with pytest.raises(LookupError, match="consume"):
        result.find("rates", {"request": "consume"}, "records_per_s")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("records_per_s", "records/s"),
        ("handler_cpu_ms_per_mb", "handler CPU ms/MB"),
        ("usd_per_gib", "$/GiB"),
        ("addBatch", "addBatch"),
    ],
)
def test_heading_reads_as_words(name: str, words: str) -> None:
    assert heading(name) == words


def test_table_is_turned_when_it_has_many_columns() -> None:
    row: Row = {f"column_{number}": number for number in range(COLUMNS_MAX + 1)}
    assert len(to_markdown([row]).splitlines()) == COLUMNS_MAX + 2


def test_command_of_each_result_exists() -> None:
    for result in load_results().values():
        words = (result.command or "").split()
        if words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None, f"{result.name}.json names {words[2]}"
        assert all((CHECKOUT / word).exists() for word in words if word.endswith(".py")), f"{result.name}.json: {words}"
