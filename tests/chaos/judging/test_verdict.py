"""The verdict: each of its own counts finds what it is for."""

import json
from pathlib import Path

from tests.chaos.judging.verdict import judge
from tests.history.format import Function, Poll, Send, Truncate
from tests.history.recorder import Recorder

WHERE = ("orders", 0)


def write(
    folder: Path, *, answers: list[tuple[str, int | None]], read: list[tuple[int, str]], unread: list[str]
) -> None:
    """Write the notes of a producer that sent "v0" and "v1" to offsets 0 and 1, of its futures, and of a reader."""
    with Recorder.open(folder / "producer.history.jsonl") as recorder:
        sends = [Send(WHERE, "v0"), Send(WHERE, "v1")]
        operation = recorder.invoke("producer", Function.SEND, sends)
        recorder.ok(operation, [Send(WHERE, "v0", 0), Send(WHERE, "v1", 1)])
    with Recorder.open(folder / "reader.history.jsonl") as recorder:
        recorder.ok(recorder.invoke("reader", Function.POLL), [Poll(WHERE, tuple(read))])
    notes = [
        {"value": value, "topic": "orders", "partition": 0, "offset": offset, "maybe_applied": False}
        for value, offset in answers
    ]
    (folder / "producer.acknowledged.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (folder / "reader.unread.json").write_text(json.dumps(unread))


def test_nothing_is_said_when_all_is_well(tmp_path: Path) -> None:
    write(tmp_path, answers=[("v0", 0), ("v1", 1)], read=[(0, "v0"), (1, "v1")], unread=[])
    verdict = judge(tmp_path, ["reader"])
    assert verdict.violations == ()
    assert (verdict.acknowledged, verdict.lost) == (2, 0)


def test_acknowledged_record_that_a_reader_did_not_find_is_lost(tmp_path: Path) -> None:
    write(tmp_path, answers=[("v0", 0), ("v1", 1)], read=[(0, "v0")], unread=[])
    verdict = judge(tmp_path, ["reader"])
    assert verdict.lost == 1
    assert any("v1" in violation for violation in verdict.violations)


def test_future_that_names_another_offset_than_the_record_has_is_reported(tmp_path: Path) -> None:
    write(tmp_path, answers=[("v0", 1), ("v1", 0)], read=[(0, "v0"), (1, "v1")], unread=[])
    assert judge(tmp_path, ["reader"]).lost == 2


def test_record_that_failed_for_certain_and_was_read_is_reported(tmp_path: Path) -> None:
    write(tmp_path, answers=[("v0", 0), ("v1", None)], read=[(0, "v0"), (1, "v1")], unread=[])
    [violation] = judge(tmp_path, ["reader"]).violations
    assert "had failed" in violation


def test_reader_that_did_not_reach_the_end_or_died_is_reported(tmp_path: Path) -> None:
    write(tmp_path, answers=[], read=[(0, "v0"), (1, "v1")], unread=["orders[0] from 2 to 9"])
    [violation] = judge(tmp_path, ["reader"]).violations
    assert "from 2 to 9" in violation
    (tmp_path / "reader.unread.json").unlink()
    (tmp_path / "history.jsonl").unlink()
    [violation] = judge(tmp_path, ["reader"]).violations
    assert "died" in violation


def test_record_that_a_retry_has_stored_twice_is_reported(tmp_path: Path) -> None:
    with Recorder.open(tmp_path / "retry.history.jsonl") as recorder:
        recorder.maybe(recorder.invoke("retry", Function.SEND, [Send(WHERE, "v2")]), attempts=1)
        recorder.ok(recorder.invoke("retry", Function.SEND, [Send(WHERE, "v2")]), [Send(WHERE, "v2", 3)])
    write(tmp_path, answers=[], read=[(0, "v0"), (1, "v1"), (2, "v2"), (3, "v2")], unread=[])
    assert judge(tmp_path, ["reader"]).violations == ("duplicate: 1",)


def truncate(folder: Path, before_offset: int) -> None:
    with Recorder.open(folder / "operator.history.jsonl") as recorder:
        recorder.maybe(recorder.invoke("operator", Function.TRUNCATE, [Truncate(WHERE, before_offset)]))


def test_what_was_truncated_is_not_lost(tmp_path: Path) -> None:
    truncate(tmp_path, 1)
    write(tmp_path, answers=[("v0", 0), ("v1", 1)], read=[(1, "v1")], unread=[])
    verdict = judge(tmp_path, ["reader"])
    assert verdict.violations == ()
    assert (verdict.truncated, verdict.lost) == (1, 0)


def test_truncation_excuses_nothing_behind_it(tmp_path: Path) -> None:
    truncate(tmp_path, 1)
    write(tmp_path, answers=[("v0", 0), ("v1", 1)], read=[(2, "v2")], unread=[])
    verdict = judge(tmp_path, ["reader"])
    assert (verdict.truncated, verdict.lost) == (1, 1)
    assert any("gaps" in violation for violation in verdict.violations)
