"""The figures and the judgement of the bench of a slow record, on made-up runs."""

import pytest

from bench.share_groups import slow_record
from bench.share_groups.slow_record import KEYS, Handling, row_of

SLOW_S = 10.0
SENT_S = {number: number / 100 for number in range(10 * KEYS)}  # numbers that KEYS divides have the slow record's key
SLOW = Handling(number=0, begun_s=0.1, ended_s=0.1 + SLOW_S)


def quick(number: int, begun_s: float) -> Handling:
    return Handling(number=number, begun_s=begun_s, ended_s=begun_s + 0.001)


def handlings(*, key_waits: bool) -> list[Handling]:
    found = [SLOW]
    for number, at_s in SENT_S.items():
        if number:
            waits = key_waits and number % KEYS == 0
            found.append(quick(number, 11 + at_s if waits else at_s + 0.05))
    return found


@pytest.mark.parametrize("ordering", slow_record.ORDERINGS)
@pytest.mark.parametrize("key_waits", [False, True])
def test_slow_record_holds_up_its_key_with_order_by_key_only(ordering: str, key_waits: bool) -> None:
    row = {"ordering": ordering, **row_of(handlings(key_waits=key_waits), SENT_S)}
    assert row["others_handled_meanwhile"] == row["others_sent_meanwhile"] == 9 * (KEYS - 1) + KEYS - 1
    assert row["others_wait_p50_ms"] == 50
    assert row["its_key_handled_meanwhile"] == (0 if key_waits else 9)
    assert slow_record.is_right(row) is (key_waits == (ordering == "key"))


def test_slow_record_is_wrong_when_it_came_again_or_held_up_others() -> None:
    right = handlings(key_waits=True)
    twice = {"ordering": "key", **row_of([*right, quick(0, 6.0)], SENT_S)}
    assert twice["deliveries_of_the_slow_record"] == 2
    assert not slow_record.is_right(twice)
    held_up = [quick(each.number, 20.0) if each.number % 7 == 1 else each for each in right]
    assert not slow_record.is_right({"ordering": "key", **row_of(held_up, SENT_S)})


def test_key_is_out_of_order_when_a_record_begins_before_an_earlier_one_has_ended() -> None:
    swapped = [quick(each.number, 4.9) if each.number == KEYS + 1 else each for each in handlings(key_waits=True)]
    assert row_of(swapped, SENT_S)["keys_out_of_order"] == 1
    assert row_of(handlings(key_waits=True), SENT_S)["keys_out_of_order"] == 0
