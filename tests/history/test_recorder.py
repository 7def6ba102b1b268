import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.history.checker import check
from tests.history.format import Acks, Commit, Function, Outcome, Poll, Send
from tests.history.history_builder import ORDERS, HistoryBuilder
from tests.history.model.operations import read_operations
from tests.history.recorder import Recorder, merge
from tests.support.child_process import child_process

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
