"""Lag, counts and witnesses."""

import json
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.history.__main__ import main
from tests.history.checker import check
from tests.history.format import Acks, Commit, Function, Outcome, Poll, Send
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read, sent_and_read
from tests.history.model.operations import read_operations
from tests.history.recorder import Recorder, merge
from tests.support.child_process import child_process


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


def test_worst_lag_is_from_the_acknowledgement_to_the_begin_of_a_poll_without_the_record() -> None:
    history = HistoryBuilder()
    history.assigned("reader", started=[(ORDERS, 0)])  # at 10
    history.sent("producer", ("a", 0))  # at 20, 30
    history.polled("reader", Poll(ORDERS, ()))  # at 40, 50
    history.sent("producer", ("b", 1))  # at 60, 70
    history.polled("reader", read((0, "a")))  # at 80, 90
    history.polled("reader", read((1, "b")))
    report = history.check()
    assert report.is_clean
    assert [(lag.lag_ns, lag.offset, lag.line) for lag in report.worst_lag] == [(10, 0, 5)]
    assert [(lag.lag_ns, lag.offset, lag.line) for lag in report.worst_empty_lag] == [(10, 0, 5)]


def test_no_lag_when_the_record_was_acknowledged_after_the_poll_began() -> None:
    history = HistoryBuilder()
    history.assigned("reader", started=[(ORDERS, 0)])
    operation = history.recorder.invoke("reader", Function.POLL)
    history.sent("producer", ("a", 0))
    history.recorder.ok(operation, [Poll(ORDERS, ())])
    history.polled("reader", read((0, "a")))
    assert history.check().worst_lag == ()


def test_no_lag_when_the_record_was_truncated() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1))
    history.truncated(2)
    history.polled("reader", Poll(ORDERS, ()))
    assert history.check().worst_lag == ()


def test_a_poll_that_returned_records_first_and_nothing_then_is_not_empty() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1), ("c", 2))
    history.polled("reader", read((1, "b")), read())
    history.polled("reader", read((2, "c")))
    report = history.check()
    assert report.worst_lag[0].offset == 2
    assert report.worst_empty_lag == ()


def test_lag_grows_until_the_record_is_returned() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1), ("c", 2))
    known_at = history.now_ns
    for _ in range(3):
        history.polled("reader", Poll(ORDERS, ()))
    began_at = history.now_ns - 10
    history.polled("reader", read((1, "b")))
    history.polled("reader", read((2, "c")))
    report = history.check()
    assert report.worst_empty_lag[0].lag_ns == began_at - known_at
    assert report.worst_lag[0].lag_ns == began_at + 20 - known_at


def test_counts_tell_what_was_sent_and_read() -> None:
    history = abc()
    history.maybe_sent("producer", "d")
    history.begin("producer", "e")
    history.failed_to_send("producer", "f", "g")
    counts = history.check().counts
    assert (counts.sends_acknowledged, counts.sends_maybe, counts.sends_failed) == (3, 2, 2)
    assert (counts.polls, counts.records_read, counts.unseen, counts.operations) == (1, 3, 0, 7)


def test_witnesses_always_have_the_operations_that_are_wrong() -> None:
    history = abc()
    for index in range(20):
        history.polled(f"bystander-{index}", read((1, "b")))
    history.polled("skipper", read((0, "a")))
    history.polled("skipper", read((2, "c")))
    (example,) = history.check().examples
    assert len(example.witnesses) == 8
    assert [witness.process for witness in example.witnesses][-2:] == ["skipper", "skipper"]


def test_witnesses_are_those_who_sent_and_read_what_is_wrong() -> None:
    history = abc()
    history.polled("bystander", read((2, "c")))
    history.failed_to_send("producer", "d")
    history.polled("reader", read((3, "d")))
    (example,) = history.check().examples
    assert [(witness.line, witness.process) for witness in example.witnesses] == [(12, "producer"), (14, "reader")]
    assert example.witnesses[1].text == "poll ok: offsets 3 to 3 (1 records), of them 3: 'd'"


REPOSITORY = Path(__file__).parents[2]


def test_recorder_writes_what_the_checker_reads() -> None:
    history = HistoryBuilder()
    operation = history.recorder.invoke("p", Function.TXN, [Send(ORDERS, "a")], acks=Acks.ALL, group="g")
    history.recorder.ok(operation, [Send(ORDERS, "a", 3), Commit(ORDERS, 2)], attempts=4)
    (read,) = read_operations(history.lines)
    assert (read.process, read.function, read.outcome, read.group) == ("p", Function.TXN, Outcome.OK, "g")
    assert (read.acks, read.attempts, read.start_ns, read.end_ns) == (Acks.ALL, 4, 10, 20)
    assert read.ops == (Send(ORDERS, "a", 3), Commit(ORDERS, 2))


def test_recorder_has_every_line_on_disk_when_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder.open(path) as recorder:
        recorder.invoke("p", Function.SEND, [Send(ORDERS, "a")])
        assert len(list(read_operations(path.read_bytes().splitlines()))) == 1


def test_recorder_keeps_times_in_order_when_threads_share_it(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"

    def work(recorder: Recorder, process: str) -> None:
        for index in range(200):
            operation = recorder.invoke(process, Function.SEND, [Send(ORDERS, f"{process}-{index}")])
            recorder.maybe(operation) if index % 2 else recorder.fail(operation)

    with Recorder.open(path) as recorder:
        threads = [threading.Thread(target=work, args=(recorder, f"p{index}")) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    report = check(path.read_bytes().splitlines())
    assert (report.counts.sends_maybe, report.counts.sends_failed) == (800, 800)


def test_merge_joins_histories_of_processes_by_time(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from tests.history.format import Function, Send
from tests.history.recorder import Recorder
with Recorder.open(Path(sys.argv[1])) as recorder:
    for index in range(100):
        recorder.invoke(sys.argv[2], Function.SEND, [Send(("orders", 0), f"{sys.argv[2]}-{index}")])
"""
    paths = [tmp_path / f"{index}.jsonl" for index in range(3)]
    with ExitStack() as stack:
        children = [
            stack.enter_context(child_process([sys.executable, "-c", script, str(path), f"p{index}"], cwd=REPOSITORY))
            for index, path in enumerate(paths)
        ]
        assert [child.wait() for child in children] == [0, 0, 0]
    merge(paths, tmp_path / "history.jsonl")
    lines = (tmp_path / "history.jsonl").read_bytes().splitlines()
    assert check(lines).counts.sends_maybe == 300


def test_merge_leaves_out_a_line_that_was_being_written_when_its_process_died(tmp_path: Path) -> None:
    history = HistoryBuilder()
    history.sent("p", ("a", 0))
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join(history.lines)[:-5])
    other = HistoryBuilder()
    other.recorder.ok(other.recorder.invoke("c", Function.POLL), [Poll(ORDERS, ((0, "a"),))])
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(other.lines))
    merge([torn, whole], tmp_path / "history.jsonl")
    report = check((tmp_path / "history.jsonl").read_bytes().splitlines())
    assert report.is_clean
    assert (report.counts.sends_acknowledged, report.counts.sends_maybe, report.counts.records_read) == (0, 1, 1)
