import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.history.__main__ import main
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, read, sent_and_read


def run(path: Path, history: HistoryBuilder, *arguments: str) -> Result:
    file = path / "history.jsonl"
    file.write_bytes(b"".join(history.lines))
    return CliRunner().invoke(main, [str(file), *arguments])


def faulty() -> HistoryBuilder:
    history = sent_and_read(("a", 0), ("b", 1))
    history.sent("producer", ("[c]", 0), where=OTHER)
    history.polled("reader", read((2, "a")))
    return history


def test_command_exits_with_0_when_the_history_is_clean(tmp_path: Path) -> None:
    result = run(tmp_path, sent_and_read(("a", 0)))
    assert result.exit_code == 0
    assert "1 acknowledged" in result.output
    assert "No anomalies." in result.output


def test_command_exits_with_1_and_shows_evidence_when_there_are_anomalies(tmp_path: Path) -> None:
    result = run(tmp_path, faulty())
    assert result.exit_code == 1
    assert "duplicate" in result.output
    assert "orders/0 'a' is at offsets 0, 2" in result.output
    assert "line 10 reader: poll ok" in result.output
    assert "'[c]' was acknowledged at offset 0" in result.output


def test_command_prints_json(tmp_path: Path) -> None:
    result = run(tmp_path, faulty(), "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report["anomalies"] == {"duplicate": 1, "unseen": 1}
    assert report["examples"][0]["where"] == list(ORDERS)
    assert report["examples"][0]["offsets"] == [0, 2]
    assert [witness["line"] for witness in report["examples"][0]["witnesses"]] == [2, 6, 10]
    assert report["counts"]["sends_acknowledged"] == 3


def test_command_shows_no_more_examples_than_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, faulty(), "--json", "--examples", "0")
    assert json.loads(result.output)["examples"] == []
    assert result.exit_code == 1


def test_command_takes_what_the_workload_makes_legitimate(tmp_path: Path) -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 1), attempts=2)
    history.polled("reader", read((0, "a"), (1, "a")))
    history.sent("producer", ("b", 2))
    result = run(tmp_path, history, "--allow-retry-duplicates", "--allow-unseen")
    assert result.exit_code == 0
    assert "1 duplicates explained by retries" in result.output
    assert "'a' is at offsets 0, 1" in result.output
    assert "Unseen at the end: 1" in result.output


def test_command_tells_the_worst_lag(tmp_path: Path) -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1))
    history.polled("reader", read(), read(where=ORDERS))
    history.polled("reader", read((1, "b")))
    result = run(tmp_path, history)
    assert "Worst real-time lag: 0.0 ms, offset 1 of orders/0, poll of reader in line 8." in result.output


@pytest.mark.parametrize("line", [b"{", b'{"type": "ok"}', b"\xff"])
def test_command_exits_with_2_and_the_line_number_when_the_history_is_malformed(tmp_path: Path, line: bytes) -> None:
    history = sent_and_read(("a", 0))
    history.write(line)
    result = run(tmp_path, history)
    assert result.exit_code == 2
    assert "line 5: " in result.output


def test_command_exits_with_2_when_there_is_no_history(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, [str(tmp_path / "none.jsonl")]).exit_code == 2
    assert CliRunner().invoke(main, []).exit_code == 2
