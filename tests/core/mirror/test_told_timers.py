"""What a mirror is told of timers, as texts."""

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Offset, Partition, TimerId
from penstock_core.limits import MIRROR_TIMERS_READ
from penstock_core.log.timer import TimerPlace, scheduled_id
from penstock_core.mirror.push import PushAnswer, answer_json, parse_answer
from penstock_core.mirror.told_timers import (
    TimersAnswer,
    TimersTelling,
    digest_of_places,
    parse_places,
    telling_json,
)
from tests.support.refusals import refused

ONE, TWO = Partition(1), Partition(2)
A, B = TimerPlace(1_700_000_000_000, TimerId(b"a" * 16)), TimerPlace(1_700_000_000_001, TimerId(b"b" * 16))


def test_answer_is_read_as_it_was_written() -> None:
    answer = PushAnswer(next_offset=Offset(5), timers=TimersAnswer(lacks=[A], others=[B], left=3))
    assert parse_answer(answer_json(answer, ONE)) == answer
    older = PushAnswer(next_offset=Offset(5))
    assert parse_answer(answer_json(older, ONE)) == older


def test_telling_names_places_as_lists_of_scheduled_records_do() -> None:
    compared = telling_json(ONE, TimersTelling(read_ms=7, listed=[A], after=A, until=B))
    text = scheduled_id(ONE, A)
    assert compared == {
        "read_ms": 7,
        "listed": [text],
        "after": text,
        "until": scheduled_id(ONE, B),
        "copied": [],
        "settled": [],
    }
    assert parse_places(ONE, compared["listed"]) == [A]
    assert "listed" not in telling_json(ONE, TimersTelling(read_ms=7, settled=[A]))


@pytest.mark.parametrize("texts", ["x", [1], ["x"], [scheduled_id(TWO, A)], [""] * (MIRROR_TIMERS_READ + 1)])
def test_other_places_are_refused(texts: object) -> None:
    refused(ErrorCode.INVALID_REQUEST, lambda: parse_places(ONE, texts))


def test_digest_tells_sets_of_places_apart() -> None:
    digests = [digest_of_places(each) for each in ([], [A], [B], [A, B])]
    assert len({*digests}) == 4
    assert digests[0] == ""
