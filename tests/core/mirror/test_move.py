"""What decides a promotion: a move that was given up promotes nothing, and a decided promotion is not given up."""

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.log.topic import MirrorNote
from penstock_core.mirror.move import UNPLANNED, decide, refuse
from tests.support.refusals import refused

NOTE = MirrorNote(name="dr", topic_id="ab" * 10)


@pytest.mark.parametrize(
    ("decided", "given_up", "number", "decision"),
    [(-1, 0, 1, 1), (-1, 0, UNPLANNED, 0), (-1, 3, UNPLANNED, 0), (-1, 3, 4, 4), (2, 0, 3, 2), (0, 0, 3, 0)],
)
def test_first_decision_holds(decided: int, given_up: int, number: int, decision: int) -> None:
    note = MirrorNote(name="dr", topic_id="ab" * 10, decided=decided, refused=given_up)
    assert decide(note, number) == decision


def test_move_that_was_given_up_decides_nothing() -> None:
    note = MirrorNote(name="dr", topic_id="ab" * 10, refused=refuse(NOTE, 3))
    assert note.refused == 3
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: decide(note, 1))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: decide(note, 3))
    assert refuse(note, 2) == 3


@pytest.mark.parametrize("note", [None, MirrorNote(name="dr", topic_id="ab" * 10, decided=0)])
def test_decided_promotion_is_not_given_up(note: MirrorNote | None) -> None:
    refused(ErrorCode.MIRROR_ENDED, lambda: refuse(note, 9))
