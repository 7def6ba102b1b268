"""A reader pays at most twice the better of two ways: asking each interval, and sleeping after each record."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from penstock.wake_ups.rhythm import Rhythm, wake_up_price

INTERVAL_MS = 200
HOUR_MS = 3_600_000
PRICE = wake_up_price(1)
ONCE = 2 * PRICE  # what a bound of the whole may be off by, whatever its length


@dataclass
class Played:
    """The costs of a run, in requests, and the longest time that a record waited."""

    own: float = 0.0
    asking: float = 0.0
    sleeping: float = 0.0
    latest_ms: int = 0

    @property
    def is_cheap(self) -> bool:
        return self.own <= 2 * min(self.asking, self.sleeping) + ONCE


def play(gaps_ms: Sequence[int], chance: float = 0.0) -> Played:
    """A reader of one partition, on a stepped clock: requests take no time, and a wake-up comes at once."""
    rhythm, played = Rhythm(INTERVAL_MS), Played()
    comes_ms = [*itertools.accumulate(gaps_ms)]
    played.asking = comes_ms[-1] / INTERVAL_MS
    played.sleeping = len(gaps_ms) * PRICE
    now_ms, at = 0, 0
    while at < len(comes_ms):
        is_awake = rhythm.is_awake(1)
        rhythm.asked(now_ms)
        has_records = comes_ms[at] <= now_ms
        played.own += 1
        if not has_records and not is_awake:  # it is armed, and sleeps until the wake-up
            now_ms = comes_ms[at]
            rhythm.asked(now_ms)
            has_records = True
            played.own += PRICE - 1
        if has_records:
            played.latest_ms = max(played.latest_ms, now_ms - comes_ms[at])
            at = next((number for number in range(at, len(comes_ms)) if comes_ms[number] > now_ms), len(comes_ms))
        rhythm.answered(1, int(has_records), now_ms=now_ms, chance=chance)
        now_ms = max(now_ms, rhythm.next_ms if rhythm.is_awake(1) else rhythm.arms_ms(1))
    return played


@pytest.mark.parametrize("gap_ms", [1, 50, 200, 300, 500, 601, 650, 690, 799, 801, 1_000, 2_000, 60_000, HOUR_MS])
def test_steady_gaps_cost_hardly_more_than_the_better_way(gap_ms: int) -> None:
    played = play([gap_ms] * 300)
    assert played.own <= 1.25 * min(played.asking, played.sleeping) + ONCE


@pytest.mark.parametrize("seed", range(200))
def test_gaps_from_a_millisecond_to_an_hour_cost_at_most_twice_the_better_way(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [int(10 ** chance.uniform(0, 6.55)) for _ in range(chance.randint(1, 5))]
    gaps = [gap for _ in range(40) for gap in [chance.choice(kinds)] * chance.choice((1, 1, 2, 5, 20))]
    assert play(gaps, chance.random() * 0.5).is_cheap


def test_no_short_pattern_costs_more_than_twice_the_better_way() -> None:
    kinds = (150, 250, 601, 650, 700, 900, 1_100, HOUR_MS)
    worst = 0.0
    for length in range(1, 5):
        for pattern in itertools.product(kinds, repeat=length):
            played = play(pattern * 60)
            assert played.is_cheap, (pattern, played)
            worst = max(worst, played.own / min(played.asking, played.sleeping))
    assert worst > 1.4  # the patterns are hard ones


def test_record_waits_an_interval_at_most() -> None:
    assert play([50] * 300).latest_ms <= INTERVAL_MS
    assert play([300, 50, 5_000] * 100).latest_ms <= INTERVAL_MS


def test_reader_of_rare_records_sleeps_at_once() -> None:
    played = play([5_000] * 100)
    assert played.own <= 100 * PRICE + ONCE


def test_one_long_night_does_not_make_a_lively_day_dear() -> None:
    night = play([HOUR_MS] * 8)
    both = play([HOUR_MS] * 8 + [100] * 1_000)
    assert both.own - night.own <= 1_000 * 100 / INTERVAL_MS + 2 * ONCE


def test_reader_without_an_interval_never_waits() -> None:
    rhythm = Rhythm(0)
    rhythm.asked(1_000)
    assert (rhythm.is_awake(6), rhythm.next_ms) == (False, 1_000)


def test_asking_for_many_partitions_makes_sleep_worth_it_sooner() -> None:
    assert 4 > wake_up_price(1) > wake_up_price(6) > 1 > wake_up_price(100)
    assert wake_up_price(6, woken=6) > wake_up_price(6, woken=1)
