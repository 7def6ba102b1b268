"""The figures and the judgement of single benches of share groups, on made-up runs."""

from collections import Counter

import pytest

from bench.report.result import Row
from bench.share_groups import failing, slow_record
from bench.share_groups.beside_sqs import Queue, Stint, rows_of
from bench.share_groups.facts import Called
from bench.share_groups.failing import CONFIG, Run
from bench.share_groups.slow_record import KEYS, Handling, row_of
from bench.share_groups.writes import row_of as writes_row

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


def failing_run(tries: int) -> Run:
    run = Run(records=4, each=2, work_ms=0.0)
    run.tries = Counter({0: tries, 1: 1, 2: tries, 3: 1})
    run.seconds = 2.0
    return run


@pytest.mark.parametrize("tries", [CONFIG["deliveries_max"] - 1, CONFIG["deliveries_max"]])
def test_failing_records_have_exactly_their_tries(tries: int) -> None:
    row = failing_run(tries).row(Counter([0, 2]), {tries})
    assert (row["failing_records"], row["good_records_per_s"], row["good_handled_again"]) == (2, 1, 0)
    assert failing.is_right(row) is (tries == CONFIG["deliveries_max"])


@pytest.mark.parametrize("dead", [[0], [0, 2, 2], [0, 1, 2]])
def test_dead_letters_are_wrong_when_one_is_missing_or_too_many(dead: list[int]) -> None:
    tries = CONFIG["deliveries_max"]
    row = failing_run(tries).row(Counter(dead), {tries})
    assert row["wrong_dead_letters"] == 1
    assert not failing.is_right(row)


def test_ratio_is_that_of_the_medians() -> None:
    rates = {0: (100, 90, 400), 4: (50, 80, 10)}
    rows: list[Row] = [
        {"failing_records": failing_records, "good_records_per_s": rate}
        for failing_records, found in rates.items()
        for rate in found
    ]
    assert failing.medians_of(rows) == {"with_failures": 50, "without": 100, "ratio": 0.5}


def test_rate_of_several_clients_counts_from_the_first_to_the_last() -> None:
    def turn(ended_s: float) -> list[Stint]:
        first = Stint(records=100, calls=30, cpu_ms=0.0, storage_calls=0, begun_s=0.0, ended_s=1.0)
        return [first, Stint(records=100, calls=10, cpu_ms=80.0, storage_calls=40, begun_s=1.0, ended_s=ended_s)]

    sides = [Queue(service="SQS", batch=10), Queue(service="Penstock", batch=100)]
    sqs, penstock = rows_of(sides, [[turn(4.0)], [turn(2.0)]])
    assert (sqs["records_per_s"], penstock["records_per_s"], penstock["times_sqs"]) == (50, 100, 2.0)
    assert (penstock["ms_per_call"], penstock["function_cpu_ms_per_call"], penstock["storage_calls_per_call"]) == (
        50.0,
        2.0,
        1.0,
    )


def test_success_is_a_call_that_locked_or_acknowledged() -> None:
    def called(call: str, records: int, acknowledgements: int, writes: int) -> Called:
        return Called(
            worker="w", call=call, records=records, acknowledgements=acknowledgements, reads=0, writes=writes, gets=0
        )

    calls = [called("acquire", 100, 1, 1), called("acknowledge", 0, 1, 2), called("acquire", 0, 0, 1)]
    row = writes_row(calls, 100, 500)
    assert (row["successes"], row["writes_per_success"]) == (2, 1.5)
    assert (row["acquires_in_vain"], row["writes_of_those"], row["records_per_write"]) == (1, 1, 25.0)
