"""The verdict: each of its own counts finds what it is for.

The verdict on the compacted topic: it excuses records that may be missing, and no others.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.clients.keyed_clients import READ, SENT
from tests.chaos.judging.keyed_verdict import KeyedVerdict, judge_keyed
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


Row = tuple[int, str, str | None]
SENDS: list[Row] = [(0, "a", "v0"), (1, "b", "v1"), (2, "a", "v2"), (3, "b", None)]


def judged(
    folder: Path,
    read: list[Row],
    *,
    sent: list[Row] = SENDS,
    to: int = 4,
    meanwhile: list[Row] | None = None,
    **more: Any,
) -> KeyedVerdict:
    """The verdict after one producer and one reader at the end, which came to offset `to`.

    Another reader may come before. `more` is a further record.
    """
    answers = [
        {"key": key, "value": value, "partition": 0, "offset": at, "maybe_applied": False} for at, key, value in sent
    ]
    if more:
        answers.append({"partition": 0, "offset": None, "maybe_applied": False} | more)
    (folder / SENT).write_text("".join(json.dumps(each) + "\n" for each in answers))
    for name, rows in (("reader", read), ("meanwhile.0", meanwhile)):
        if rows is not None:
            poll = {"partition": 0, "from": 0, "to": to if name == "reader" else rows[-1][0] + 1, "records": rows}
            (folder / f"{name}.{READ}").write_text(json.dumps(poll) + "\n")
    return judge_keyed(folder, ["reader"])


@pytest.mark.parametrize("gone", [(), (0,), (1,), (0, 1)])
def test_superseded_records_may_be_gone(tmp_path: Path, gone: tuple[int, ...]) -> None:
    verdict = judged(tmp_path, [each for each in SENDS if each[0] not in gone])
    assert verdict.violations == ()
    assert (verdict.acknowledged, verdict.removed, verdict.lost) == (4, len(gone), 0)


@pytest.mark.parametrize("gone", [2, 3])
def test_newest_record_of_a_key_may_not_be_gone_be_it_a_tombstone(tmp_path: Path, gone: int) -> None:
    verdict = judged(tmp_path, [each for each in SENDS if each[0] != gone])
    assert verdict.lost == 1
    assert all("reader" in each for each in verdict.violations)
    assert len(verdict.violations) == 2  # the reader skipped the record, and did not find it


def test_reader_that_ended_before_the_newest_did_not_find_it(tmp_path: Path) -> None:
    [violation] = judged(tmp_path, SENDS[:3], to=3).violations
    assert "did not find the newest" in violation


def test_reader_meanwhile_may_not_pass_over_what_stays(tmp_path: Path) -> None:
    [violation] = judged(tmp_path, SENDS, meanwhile=[SENDS[3]]).violations
    assert violation.startswith("meanwhile.0 passed over 1 records")


def test_record_known_from_a_poll_alone_supersedes_and_must_stay(tmp_path: Path) -> None:
    maybe: Any = {"key": "a", "value": "v4", "maybe_applied": True}
    read: list[Row] = [(3, "b", None), (4, "a", "v4")]
    assert judged(tmp_path, read, to=5, **maybe).violations == ()
    assert judged(tmp_path, SENDS[2:], to=5, meanwhile=[*SENDS, (4, "a", "v4")], **maybe).lost == 1


@pytest.mark.parametrize(
    ("read", "what"),
    [
        ([(0, "a", "v0"), (1, "b", "v1"), (2, "a", "x"), (3, "b", None)], "both at (0, 2)"),
        ([(2, "a", "v2"), (3, "b", None), (4, "a", "v2")], "is at"),
        ([(2, "a", "v2"), (3, "b", None), (4, "c", "v9")], "was never sent"),
        ([(3, "b", None), (2, "a", "v2")], "was given"),
    ],
)
def test_records_elsewhere_twice_out_of_order_or_unsent_are_reported(
    tmp_path: Path, read: list[Row], what: str
) -> None:
    assert any(what in violation for violation in judged(tmp_path, read, to=5).violations)


def test_record_that_had_failed_is_reported(tmp_path: Path) -> None:
    read: list[Row] = [*SENDS, (4, "c", "v4")]
    [violation] = judged(tmp_path, read, to=5, key="c", value="v4").violations
    assert "had failed" in violation
