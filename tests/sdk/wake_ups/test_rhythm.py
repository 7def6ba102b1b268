"""A reader pays at most twice the better of two ways: asking each interval, and sleeping after each record.

Which channels a consumer takes, and what it may rely on.

The messages of AppSync Events, good and hostile.
"""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wake_ups.events import Acknowledged, Endpoint, Refused, Subscribed, WakeUp, parse, parse_endpoint
from penstock.wake_ups.rhythm import Rhythm, wake_up_price
from penstock.wake_ups.watch import Watch
from penstock_core.limits import OFFSET_MAX, SDK_WAKE_UP_CHANNELS_MAX, SDK_WAKE_UP_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX

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
            if pattern != min(pattern[at:] + pattern[:at] for at in range(length)):
                continue  # the same one, begun at another gap
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


def _wanting(*partitions: tuple[str, int]) -> Watch:
    watch = Watch()
    watch.want(partitions, 100)
    return watch


def test_few_partitions_take_a_channel_each_and_that_of_the_topic() -> None:
    assert _wanting(("t", 0), ("t", 7)).leaves == {("t", "0"), ("t", "7"), ("t", "all")}


def test_many_partitions_take_one_channel_for_all() -> None:
    watch = _wanting(*(("t", number) for number in range(SDK_WAKE_UP_PARTITIONS_MAX + 1)), ("u", 1))
    assert watch.leaves == {("t", "*"), ("u", "1"), ("u", "all")}


def test_many_topics_take_one_channel_each_up_to_the_bound() -> None:
    watch = _wanting(*((f"t{number:03}", part) for number in range(60) for part in (0, 1)))
    assert len(watch.leaves) == SDK_WAKE_UP_CHANNELS_MAX
    assert all(leaf == "*" for _, leaf in watch.leaves)
    watch.subscribed(("t000", "*"))
    assert watch.coverage("t000", 1)
    assert not watch.coverage("t059", 1)


def test_partition_is_covered_when_every_channel_that_may_carry_its_wake_ups_is_subscribed() -> None:
    watch = _wanting(("t", 0))
    watch.subscribed(("t", "0"))
    assert not watch.coverage("t", 0)
    watch.subscribed(("t", "all"))
    assert watch.coverage("t", 0)
    assert not watch.coverage("t", 1)
    assert not watch.coverage(None, 0)
    watch.unsubscribed(("t", "all"))
    assert not watch.coverage("t", 0)


def test_coverage_has_another_number_after_each_subscription() -> None:
    watch = _wanting(("t", 0))
    numbers = []
    for _ in range(3):
        watch.subscribed(("t", "0"))
        watch.subscribed(("t", "all"))
        numbers.append(watch.coverage("t", 0))
        watch.lost()
        assert not watch.coverage("t", 0)
    assert len(set(numbers)) == 3


def test_version_grows_only_when_what_is_wanted_changes() -> None:
    watch = _wanting(("t", 0))
    version = watch.version
    watch.want([("t", 0)], 5_000)
    assert (watch.version, watch.hold_until_ms) == (version, 100)
    watch.want([("t", 1)], 5_000)
    assert (watch.version, watch.hold_until_ms) == (version + 1, 100)


PLACE = {"realtime": "wss://r.example/event/realtime", "host": "h.example", "realtime_host": "r.example"}
WHOLE = {**PLACE, "namespace": "wake"}


def _data(event: Any) -> str:
    return json.dumps({"type": "data", "id": "1", "event": event})


def _event(**fields: Any) -> str:
    return json.dumps({"topic_id": "t", **fields})


def test_messages_are_read_as_aws_documents_them() -> None:
    assert parse('{"type":"connection_ack","connectionTimeoutMs":120000}') == [Acknowledged(120_000)]
    assert parse('{"type":"subscribe_success","id":"7"}') == [Subscribed("7")]
    assert parse('{"type":"ka"}') == []
    errors = [{"errorType": "UnauthorizedException"}]
    assert parse(json.dumps({"type": "subscribe_error", "id": "7", "errors": errors})) == [
        Refused("7", json.dumps(errors))
    ]
    assert parse(json.dumps({"type": "connection_error", "errors": errors})) == [Refused(None, json.dumps(errors))]


def test_wake_ups_of_one_and_of_many_partitions_are_read() -> None:
    one = _event(partition=3, next_offset=1207)
    many = _event(partitions={"3": 1207, "40": None})
    assert parse(_data(one)) == [WakeUp("t", 3, 1207)]
    assert parse(_data(many)) == [WakeUp("t", 3, 1207), WakeUp("t", 40, None)]
    assert len(parse(_data([one, many]))) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        "[" * 100_000,
        '{"type":"data"}',
        '{"type":"subscribe_success","id":7}',
        '{"type":["ka"]}',
        _data("not JSON"),
        _data(7),
        _data([None, 3, {}]),
        _data(_event()),
        _data(_event(partition=-1, next_offset=5)),
        _data(_event(partition="٣", next_offset=5)),
        _data(_event(partition=10**30, next_offset=5)),
        _data(_event(partition=0, next_offset=-1)),
        _data(_event(partition=0, next_offset=OFFSET_MAX + 1)),
        _data(_event(partition=0, next_offset=True)),
        _data(_event(partition=0, next_offset=1.5)),
        _data(_event(partition=0, next_offset="5")),
        _data(json.dumps({"topic_id": 5, "partition": 0, "next_offset": 5})),
        '{"type":"data","id":"1","event":"{\\"topic_id\\":\\"t\\",\\"partition\\":0,\\"next_offset\\":1e999}"}',
    ],
)
def test_message_that_makes_no_sense_is_no_event(text: str) -> None:
    assert parse(text) == []


def test_message_of_very_many_partitions_is_cut() -> None:
    many = _event(partitions={str(number): 1 for number in range(5 * TOPIC_PARTITIONS_MAX)})
    assert len(parse(_data(many))) == TOPIC_PARTITIONS_MAX


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "id",
                        "event",
                        "topic_id",
                        "partition",
                        "partitions",
                        "next_offset",
                        "connectionTimeoutMs",
                        "errors",
                    ]
                )
                | st.text(),
                inner,
            )
        ),
    )
)
def test_no_json_at_all_raises(value: Any) -> None:
    for text in (json.dumps(value), _data(json.dumps(value)), _data(value)):
        for event in parse(text):
            assert not isinstance(event, WakeUp) or event.next_offset is None or 0 <= event.next_offset <= OFFSET_MAX


@pytest.mark.parametrize(
    ("told", "meant"), [(0, 1_000), (-5, 1_000), (10**12, 900_000), ("x", 300_000), (True, 300_000)]
)
def test_absurd_timeout_is_bounded(told: Any, meant: int) -> None:
    assert parse(json.dumps({"type": "connection_ack", "connectionTimeoutMs": told})) == [Acknowledged(meant)]


def test_place_is_read_and_null_means_none() -> None:
    assert parse_endpoint(WHOLE) == Endpoint("wss://r.example/event/realtime", "h.example", "r.example", "wake")
    assert parse_endpoint({"realtime": None}) is None
    assert parse_endpoint({**WHOLE, "realtime": "ws://127.0.0.1:4566/event/realtime"}) is not None


@pytest.mark.parametrize(
    "place",
    [
        PLACE,
        {**WHOLE, "realtime": 5},
        {**WHOLE, "realtime": ""},
        {**WHOLE, "realtime": "ws://r.example/event/realtime"},  # anybody on the way could read the signed headers
        {**WHOLE, "realtime": "https://r.example"},
        {**WHOLE, "realtime_host": "r.example\r\nX: y"},
        {**WHOLE, "host": None},
    ],
)
def test_place_that_makes_no_sense_is_refused(place: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wake-ups are offered"):
        parse_endpoint(place)
