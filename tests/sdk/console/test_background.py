"""A value is read in a thread, when somebody looks and it is old."""

import threading

from penstock.console.background import Background
from penstock.console.service_down import ServiceDownError
from penstock.errors import ConnectionFailedError
from penstock_core.errors import ErrorCode, PenstockError
from tests.support.deadlines import DEADLINE_S

DEADLINE_MS = int(DEADLINE_S * 1_000)


class Source:
    """Gives one value after another, each once the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.reads = 0
        self.error: Exception | None = None
        self.now_ms = 0
        self.done = threading.Event()

    def read(self) -> int:
        assert self.gate.wait(DEADLINE_S)
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.reads

    def background(self) -> Background[int]:
        return Background(self.read, lambda: 1_000, clock_ms=lambda: self.now_ms)


def look_until_read(background: Background[int], source: Source, reads: int) -> None:
    """Look until so many readings have ended: the thread of one may still be at it."""
    while background.look(0).is_reading or source.reads < reads:
        source.done.wait(0.001)


def test_first_look_waits_for_the_value_and_later_looks_share_it() -> None:
    source = Source()
    background = source.background()
    assert background.look(DEADLINE_MS).value == 1
    source.now_ms = 999
    found = background.look(0)
    assert (found.value, found.age_ms, found.error, source.reads) == (1, 999, None, 1)


def test_old_value_is_shown_while_the_next_one_is_read() -> None:
    source = Source()
    background = source.background()
    background.look(DEADLINE_MS)
    source.gate.clear()
    source.now_ms = 1_000
    found = background.look(0)
    assert (found.value, found.is_reading) == (1, True)
    background.look(0)
    source.gate.set()
    look_until_read(background, source, 2)
    assert (background.look(0).value, source.reads) == (2, 2)


def test_look_that_may_not_wait_has_no_value_yet() -> None:
    source = Source()
    source.gate.clear()
    background = source.background()
    found = background.look(1)
    assert (found.value, found.age_ms, found.is_reading) == (None, None, True)
    source.gate.set()
    look_until_read(background, source, 1)


def test_failure_is_told_and_the_last_value_stays() -> None:
    source = Source()
    background = source.background()
    background.look(DEADLINE_MS)
    source.error = PenstockError(ErrorCode.THROTTLED, "slow down")
    source.now_ms = 1_000
    background.look(0)
    look_until_read(background, source, 2)
    found = background.look(0)
    assert found.value == 1
    assert "slow down" in (found.error or "")


def test_defect_is_told_by_its_kind_only() -> None:
    source = Source()
    source.error = ValueError("a secret")
    assert source.background().look(DEADLINE_MS).error == "the console has a defect: ValueError"


def test_settled_value_is_the_one_after_the_reading_and_a_long_reading_leaves_the_last_one() -> None:
    source = Source()
    background = source.background()
    background.begin()
    assert background.settled(DEADLINE_MS).value == 1
    source.now_ms = 1_000
    source.gate.clear()
    background.begin()
    found = background.settled(1)
    assert (found.value, found.is_reading) == (1, True)
    source.gate.set()
    found = background.settled(DEADLINE_MS)
    assert (found.value, found.is_reading) == (2, False)


def test_service_that_does_not_answer_is_told_as_such() -> None:
    source = Source()
    source.error = ServiceDownError(ConnectionFailedError("nobody there", maybe_applied=False))
    found = source.background().look(DEADLINE_MS)
    assert found.down is source.error
    assert "nobody there" in (found.error or "")
