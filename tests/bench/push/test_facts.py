import json
from pathlib import Path

from bench.push.facts import Invocation, Verdict, judge, read_ledger

SENT = [(0, offset) for offset in range(6)]


def invocation(began_ms: float, *offsets: int, is_handled: bool = True) -> Invocation:
    return Invocation(
        request_id=str(began_ms),
        pid=1,
        began_ms=began_ms,
        places=tuple((0, offset) for offset in offsets),
        values=("",) * len(offsets),
        sent_ms=(0,) * len(offsets),
        is_handled=is_handled,
    )


def test_clean_run_is_right() -> None:
    verdict = judge([invocation(1, 0, 1, 2), invocation(2, 3, 4, 5)], SENT, [])
    assert verdict == Verdict(handled=6, dead=0, lost=0, both=0, out_of_order=0, again=0, invocations=2)
    assert verdict.is_right


def test_batch_that_comes_again_after_a_death_is_right() -> None:
    verdict = judge([invocation(1, 0, 1, is_handled=False), invocation(2, 0, 1), invocation(3, 2, 3, 4, 5)], SENT, [])
    assert (verdict.is_right, verdict.again, verdict.invocations) == (True, 0, 3)


def test_batch_that_was_handled_and_comes_again_is_counted() -> None:
    verdict = judge([invocation(1, 0, 1), invocation(2, 0, 1, 2, 3, 4, 5)], SENT, [])
    assert (verdict.is_right, verdict.again) == (True, 2)


def test_record_that_nobody_handled_is_lost() -> None:
    verdict = judge([invocation(1, 0, 1, 2), invocation(2, 4, 5, is_handled=False)], SENT, [(0, 3)])
    assert (verdict.is_right, verdict.lost, verdict.dead) == (False, 2, 1)


def test_record_that_comes_first_after_a_later_one_is_out_of_order() -> None:
    verdict = judge([invocation(1, 0, 1, 3), invocation(2, 2, 3, 4, 5)], SENT, [])
    assert (verdict.is_right, verdict.out_of_order) == (False, 1)


def test_record_that_was_handled_and_dead_lettered_is_counted() -> None:
    assert judge([invocation(1, *range(6))], SENT, [(0, 2)]).both == 1


def test_ledger_joins_the_begin_and_the_end_of_an_invocation(tmp_path: Path) -> None:
    fact = {"pid": 7, "request_id": "a", "began_ms": 5.0, "records": [[0, 3, "v", 4]]}
    other = {**fact, "request_id": "b", "began_ms": 3.0}
    lines = [{**fact, "state": "began"}, {**other, "state": "began"}, {**fact, "state": "handled"}]
    ledger = tmp_path / "ledger.jsonl"
    assert read_ledger(ledger) == []
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = read_ledger(ledger)
    assert (first.request_id, first.is_handled, second.is_handled) == ("b", False, True)
    assert (second.places, second.values, second.sent_ms) == (((0, 3),), ("v",), (4,))
