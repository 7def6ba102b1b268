"""The choice of the topics with series of their own."""

from collections import Counter

from penstock_core.limits import METRIC_RANK_MS
from penstock_service.instance.instance import Instance
from penstock_service.metrics.rank_topics import measured_topics, rank_topics
from tests.support.service import SteppedClock, counted_instance, new_topic, send


def chosen(instance: Instance) -> set[str]:
    return {*measured_topics(instance.stores.cursors)}


def test_nothing_is_chosen_before_the_first_run(instance: Instance) -> None:
    assert chosen(instance) == set()


def test_all_topics_are_chosen_without_a_look_at_their_heads_when_there_are_places(instance: Instance) -> None:
    for name in ("a", "b", "c"):
        new_topic(instance, name)
    calls: Counter[str] = Counter()
    assert rank_topics(counted_instance(instance, calls), 3)
    assert chosen(instance) == {"a", "b", "c"}
    assert calls["log.heads"] == 0


def test_topics_that_grow_fastest_are_chosen(instance: Instance, clock: SteppedClock) -> None:
    for name, values in (("slow", 1), ("fast", 50), ("idle", 0), ("medium", 10)):
        new_topic(instance, name, 2)
        for partition in range(2 if values else 0):
            send(instance, name, *["value"] * values, partition=partition)
    clock.sleep_ms(10_000)
    assert rank_topics(instance, 2)
    assert chosen(instance) == {"fast", "medium"}


def test_heads_of_many_topics_are_read_together(instance: Instance) -> None:
    for number in range(60):
        new_topic(instance, f"topic-{number}", 2)
    calls: Counter[str] = Counter()
    assert rank_topics(counted_instance(instance, calls), 3)
    assert calls["log.heads"] == 2, "120 partitions"


def test_new_topic_gets_a_free_place_within_minutes(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, "a")
    rank_topics(instance, 2)
    new_topic(instance, "b")
    assert not rank_topics(instance, 2)
    clock.sleep_ms(METRIC_RANK_MS)
    assert rank_topics(instance, 2)
    assert chosen(instance) == {"a", "b"}


def test_choice_stands_while_the_hour_lasts_when_all_places_are_taken(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, "a")
    rank_topics(instance, 1)
    new_topic(instance, "b")
    send(instance, "b", *["value"] * 100)
    clock.sleep_ms(METRIC_RANK_MS)
    assert not rank_topics(instance, 1)
    clock.sleep_ms(3_600_000)
    assert rank_topics(instance, 1)
    assert chosen(instance) == {"b"}


def test_topic_that_has_a_place_keeps_it_when_others_come_within_the_hour(
    instance: Instance, clock: SteppedClock
) -> None:
    clock.time_ms = 3_600_000.0
    new_topic(instance, "a")
    rank_topics(instance, 2)
    for name in ("b", "c"):
        new_topic(instance, name)
        send(instance, name, *["value"] * (100 if name == "c" else 1))
    clock.sleep_ms(METRIC_RANK_MS)
    assert rank_topics(instance, 2)
    assert chosen(instance) == {"a", "c"}
