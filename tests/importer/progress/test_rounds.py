import pytest

from penstock.errors import FencedError
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import IMPORT_FAILURES_MAX
from penstock_import.progress import rounds as rounds_module
from penstock_import.progress.rounds import Rounds, fenced_by_others, transactional_id_of


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "random_fraction", lambda: 0.0)


class _Waits:
    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def waits(self, error: PenstockError, seconds: float) -> None:
        self.codes.append(error.code)


class _Work:
    """Fails as told, one entry of `errors` for each step; ends after `steps` that did not fail."""

    def __init__(self, report: _Waits, steps: int, errors: list[PenstockError | None] | None = None) -> None:
        self.prepared = 0
        self.rounds = Rounds(report)
        self._steps = steps
        self._errors = errors or []

    def prepare(self) -> None:
        self.prepared += 1
        self.rounds.is_ready = True

    def advance(self) -> bool:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        self._steps -= 1
        return self._steps > 0

    def may_pass(self, error: PenstockError) -> bool:
        return error.code.is_retriable


def _throttled() -> PenstockError:
    return PenstockError(ErrorCode.THROTTLED, "slow down")


def test_rounds_prepare_once_when_no_step_fails() -> None:
    report = _Waits()
    work = _Work(report, 3)
    work.rounds.run(work)
    assert (work.prepared, report.codes) == (1, [])


def test_rounds_prepare_again_after_each_error_that_may_pass() -> None:
    report = _Waits()
    work = _Work(report, 2, [_throttled(), None, _throttled()])
    work.rounds.run(work)
    assert (work.prepared, report.codes) == (3, [ErrorCode.THROTTLED] * 2)


def test_rounds_raise_at_once_when_no_try_heals() -> None:
    work = _Work(_Waits(), 2, [PenstockError(ErrorCode.UNKNOWN_TOPIC, "no such topic")])
    with pytest.raises(PenstockError, match="no such topic"):
        work.rounds.run(work)
    assert work.prepared == 1


def test_rounds_raise_the_last_error_when_tries_run_out() -> None:
    report = _Waits()
    work = _Work(report, 1, [_throttled() for _ in range(IMPORT_FAILURES_MAX + 1)])
    with pytest.raises(PenstockError, match="slow down"):
        work.rounds.run(work)
    assert len(report.codes) == IMPORT_FAILURES_MAX


def test_rounds_do_nothing_when_they_were_stopped() -> None:
    work = _Work(_Waits(), 1)
    work.rounds.stop()
    work.rounds.run(work)
    assert work.prepared == 0


def test_transactional_id_names_the_pair_of_source_and_topic() -> None:
    assert transactional_id_of("a", "b") == transactional_id_of("a", "b")
    assert len({transactional_id_of("a", "b"), transactional_id_of("a", "c"), transactional_id_of("b", "b")}) == 3


def test_fenced_by_others_keeps_the_code_and_says_what_happened() -> None:
    def begin() -> None:
        raise FencedError(ErrorCode.PRODUCER_FENCED, "an epoch", maybe_applied=False)

    with pytest.raises(FencedError, match="another import") as caught:
        fenced_by_others(begin, "another import")
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
