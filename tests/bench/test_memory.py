"""The price of a function over Lambda's memories, from a measured CPU and counted waits.

The price of a small append as an item, against its budget and what the page shows.

The figures and the judgement of the bench of a slow record, on made-up runs.
"""

from collections.abc import Callable

import pytest

from bench.bill.deployment import billed_profile
from bench.bill.requests import PROFILES
from bench.inline_appends import bill_life
from bench.memory import CORE_MB, MEMORIES_MB, choice_of, function_ms, memory_rows
from bench.report.result import load_results
from bench.rivals.__main__ import bar_rows, rate_rows
from bench.rivals.race import Load, Stint, Turn, rate
from bench.share_groups import slow_record
from bench.share_groups.slow_record import KEYS, Handling, row_of
from bench.turns import Spread, spread, take_turns
from penstock_cdk.settings import FUNCTION_SIZES
from penstock_core.log.ref import Tier

WAITING = {"cpu_ms": 0.5, "waits": {"target": 1, "get_item": 10}, "peak_mib": 60}
COMPUTING = {"cpu_ms": 40.0, "waits": {"get_object": 1}, "peak_mib": 250}


def test_time_is_the_waits_and_the_cpu_over_the_share_of_a_core() -> None:
    assert function_ms(COMPUTING, CORE_MB) == 45
    assert function_ms(COMPUTING, CORE_MB // 2) == pytest.approx(85, abs=0.1)
    assert function_ms(COMPUTING, 2 * CORE_MB) == 45, "a second core does not help"


def test_function_that_waits_takes_the_least_memory_and_one_that_computes_more() -> None:
    assert choice_of([WAITING]) == MEMORIES_MB[0]
    assert choice_of([COMPUTING]) >= 1_024


def test_a_wait_costs_by_memory_and_cpu_does_not() -> None:
    waiting, computing = memory_rows("deliver", [WAITING]), memory_rows("fetch", [COMPUTING])
    assert waiting[4]["usd_per_million"] / waiting[2]["usd_per_million"] == pytest.approx(2, rel=0.05)
    assert computing[4]["usd_per_million"] / computing[2]["usd_per_million"] == pytest.approx(1, rel=0.1)


def test_memory_that_the_process_does_not_fit_in_is_told() -> None:
    fits = {row["memory_mb"]: row["fits"] for row in memory_rows("fetch", [COMPUTING])}
    assert (fits[256], fits[384]) == ("no", "yes")


def test_settings_are_within_a_step_of_the_recorded_choice() -> None:
    rows = load_results()["memory"].tables["memories"]
    for row in rows:
        if row["choice"]:
            chosen = MEMORIES_MB.index(int(str(row["memory_mb"])))
            now_mb = FUNCTION_SIZES[str(row["function"])].memory_mb
            # Deliveries decode whole slices, so they keep a step more than one of small records needs.
            assert abs(MEMORIES_MB.index(now_mb) - chosen) <= (2 if row["function"] == "deliver" else 1), row


SMALL_APPEND_USD_MAX = 2.5  # of a million, embedded, with its deletion: the bar for small appends
SMALL_APPEND_WITH_TTL_USD_MAX = 1.8  # embedded, with its days to the TTL
RECORD_BYTES = 500


@pytest.mark.slow
def test_small_append_as_an_item_costs_at_most_its_budget() -> None:
    life = bill_life(billed_profile("express3"), RECORD_BYTES, Tier.INLINE, appends=32)
    assert life.appended + life.removed <= SMALL_APPEND_USD_MAX
    written = load_results()["inline_appends"]
    row = {"record_bytes": RECORD_BYTES}
    assert life.appended == pytest.approx(written.find("an append as an item, a million", row, "append_usd"), rel=0.02)
    assert life.item_bytes == written.find("an append as an item, a million", row, "item_bytes")


@pytest.mark.slow
def test_small_append_with_a_ttl_costs_less_to_its_end_than_the_append_of_one_without() -> None:
    life = bill_life(billed_profile("express3"), RECORD_BYTES, Tier.EXPIRING, appends=32)
    assert (life.moved, life.removed) == (0.0, 0.0)
    assert life.embedded <= SMALL_APPEND_WITH_TTL_USD_MAX
    assert life.direct == pytest.approx(life.embedded + life.by_lambda)


def test_small_append_as_an_item_costs_less_than_one_to_zones_to_the_end_of_its_bytes() -> None:
    tables = load_results()["inline_appends"].tables
    [item] = [row for row in tables["an append as an item, a million"] if row["record_bytes"] == RECORD_BYTES]
    zonal = [row for row in tables["an append to zones, a million"] if row["record_bytes"] == RECORD_BYTES]
    assert len(zonal) == len(PROFILES)
    assert all(float(str(item["embedded_sum_usd"])) < float(str(row["embedded_sum_usd"])) for row in zonal)


def test_rate_spans_all_clients_and_leaves_out_idle_ones() -> None:
    stints = [
        Stint(records=100, begun_s=0.0, ended_s=1.0),
        Stint(records=300, begun_s=0.5, ended_s=2.0),
        Stint(records=0, begun_s=0.0, ended_s=20.0),
    ]
    assert rate(stints) == 200.0
    assert rate(stints[2:]) == 0.0


def test_bar_is_missed_when_one_way_is_slower() -> None:
    ours, theirs = Turn(sent_per_s=900.0, received_per_s=700.0), Turn(sent_per_s=100.0, received_per_s=100.0)
    rows = bar_rows({(100, 1): {"Penstock": [ours], "Kinesis": [theirs]}, (1_000, 1): {"Kinesis": [theirs]}})
    assert [(row["sent_times"], row["received_times"], row["holds"]) for row in rows] == [(9.0, 7.0, "no")]


def test_rates_are_medians_with_their_span() -> None:
    turns = [Turn(sent_per_s=each, received_per_s=2 * each) for each in (1_000.0, 3_000.0, 2_000.0)]
    (row,) = rate_rows(Load(record_bytes=1_000, clients=1, seconds=1), {"Kinesis": turns})
    assert (row["sent_records_per_s"], row["sent_span"], row["sent_mb_per_s"]) == (2_000, "1,000 to 3,000", 2.0)
    assert row["received_records_per_s"] == 4_000


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


def test_order_alternates_when_sides_take_turns() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], str]:
        return lambda: order.append(name) or name  # type: ignore[func-returns-value]

    samples = take_turns([side("a"), side("b")], 2)
    assert "".join(order) == "ab" + "ba" + "ab"
    assert samples == [["a", "a"], ["b", "b"]]


def test_warm_up_does_not_count() -> None:
    numbers = iter(range(10))
    assert take_turns([lambda: next(numbers)], 2) == [[1, 2]]


def test_spread_has_the_median_and_both_ends() -> None:
    assert spread([5.0, 1.0, 900.0]) == Spread(median=5.0, low=1.0, high=900.0)
    assert spread([1_200.0, 0.12345]).words() == "0.123 to 1,200"
