from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.limits import METRIC_ZEROS
from penstock_core.metrics.lag_memory import (
    OTHER,
    Consumer,
    ConsumerKind,
    ConsumerLag,
    LagMemory,
    TopicTraffic,
    by_series,
    decode_memory,
    encode_memory,
    published,
)

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def group(name: str) -> Consumer:
    return Consumer(ConsumerKind.GROUP, name)


def lag(name: str, records: int = 1, age_ms: int = 1_000) -> ConsumerLag:
    return ConsumerLag(consumer=group(name), records=records, oldest_age_ms=age_ms)


def idle(name: str) -> ConsumerLag:
    return lag(name, 0, 0)


class Runs:
    """One run after the other, a minute apart."""

    def __init__(self, own_max: int, always: Collection[Consumer] = ()) -> None:
        self.memory = LagMemory()
        self.now_ms = 1_000 * HOUR_MS
        self._own_max = own_max
        self._always = always

    def run(self, *lags: ConsumerLag) -> dict[str, tuple[int, int]]:
        """The series that are published, with records and age."""
        lines, memory = published(self.memory, lags, self._always, self._own_max, self.now_ms)
        self.memory = decode_memory(encode_memory(memory))
        assert self.memory == memory
        self.now_ms += MINUTE_MS
        return {each.consumer.name: (each.records, each.oldest_age_ms) for each in lines}


def test_consumer_that_was_never_behind_publishes_nothing() -> None:
    runs = Runs(10)
    assert [runs.run(idle("a")) for _ in range(3)] == [{}, {}, {}]
    assert runs.memory.zeros == {}


def test_consumer_that_has_caught_up_publishes_zeros_for_a_while() -> None:
    runs = Runs(10)
    assert runs.run(lag("a", 7, 9_000)) == {"a": (7, 9_000)}
    told = [runs.run(idle("a")) for _ in range(METRIC_ZEROS + 5)]
    assert told == [{"a": (0, 0)}] * METRIC_ZEROS + [{}] * 5


def test_oldest_consumers_get_the_places_and_the_others_share_a_series() -> None:
    runs = Runs(2)
    told = runs.run(lag("a", 1, 100), lag("b", 2, 900), lag("c", 3, 500), lag("d", 4, 200))
    assert told == {"b": (2, 900), "c": (3, 500), OTHER: (5, 200)}


def test_consumer_keeps_its_place_while_the_hour_lasts_though_another_one_is_older() -> None:
    runs = Runs(1)
    runs.run(lag("a"))
    assert runs.run(idle("a"), lag("b", 5, 99_000)) == {"a": (0, 0), OTHER: (5, 99_000)}


def test_place_of_a_silent_consumer_goes_to_another_one_when_the_hour_ends() -> None:
    runs = Runs(1)
    runs.run(lag("a"))
    for _ in range(METRIC_ZEROS):
        runs.run(idle("a"))
    assert runs.run(idle("a"), lag("b")) == {OTHER: (1, 1_000)}
    runs.now_ms += HOUR_MS
    assert runs.run(idle("a"), lag("b")) == {"b": (1, 1_000), OTHER: (0, 0)}


def test_consumer_with_an_alarm_has_a_place_though_others_are_older() -> None:
    runs = Runs(1, always=[group("a")])
    assert runs.run(lag("a", 1, 10), lag("b", 2, 900)) == {"a": (1, 10), OTHER: (2, 900)}


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3), max_size=8), max_size=40),
    st.integers(1, 4),
)
def test_series_of_one_hour_never_exceed_the_bound(minutes: list[dict[str, int]], own_max: int) -> None:
    runs = Runs(own_max)
    seen: set[str] = set()
    for each in minutes:
        seen |= runs.run(*(lag(name, records, records) for name, records in each.items())).keys()
    assert len(seen - {OTHER}) <= own_max


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '{"zeros": {"x": 1}}', '{"hour": null}', "null"])
def test_memory_that_no_release_wrote_counts_as_empty(text: str | None) -> None:
    assert decode_memory(text) == LagMemory()


def test_topics_without_a_series_are_summed() -> None:
    traffic = {
        "orders": TopicTraffic(records_received=2, bytes_received=300),
        "clicks": TopicTraffic(records_received=3),
        "views": TopicTraffic(records_received=4, requests_failed=1),
    }
    assert by_series(traffic, {"orders"}) == {
        "orders": traffic["orders"],
        OTHER: TopicTraffic(records_received=7, requests_failed=1),
    }


def test_counts_name_only_what_is_not_zero() -> None:
    assert TopicTraffic(bytes_sent=7, requests_throttled=1).counts() == {"bytes_sent": 7, "requests_throttled": 1}
