"""The verdict on the compacted topic: it excuses records that may be missing, and no others."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.clients.keyed_clients import READ, SENT
from tests.chaos.judging.keyed_verdict import KeyedVerdict, judge_keyed

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
