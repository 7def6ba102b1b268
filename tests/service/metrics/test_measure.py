"""The run of each minute: what it publishes, remembers and writes."""

from collections import Counter
from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import METRIC_ZEROS
from penstock_core.metrics.lag_memory import OTHER
from penstock_service.groups.delete_group import delete_group
from penstock_service.instance.instance import Instance
from penstock_service.metrics.measure import MeasureWish, measure
from tests.service.metrics.test_consumer_lags import commit
from tests.support.service import Counted, Intercepted, SteppedClock, filled_topic, send, with_stores

FOR_EVER_MS = 1e9
WISH = MeasureWish(topics_max=10, consumers_max=20)


def told(instance: Instance, wish: MeasureWish = WISH) -> dict[str, tuple[int, int]]:
    done = measure(instance, wish, budget_ms=FOR_EVER_MS)
    assert (done.failures, done.is_finished) == (0, True)
    return {str(each.consumer): (each.records, each.oldest_age_ms) for each in done.lags}


def test_group_that_is_behind_is_published_until_its_zeros_are_over(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=5)
    commit(instance, "billing", "orders", 0, 3)
    clock.sleep_ms(60_000)
    assert told(instance) == {"group/billing": (2, 60_000)}
    commit(instance, "billing", "orders", 0, 5)
    zeros = 0
    while told(instance):
        zeros += 1
    assert zeros == METRIC_ZEROS
    send(instance, "orders", "more")
    assert told(instance) == {"group/billing": (1, 0)}


def test_run_writes_nothing_when_nothing_is_behind(instance: Instance) -> None:
    filled_topic(instance, records=5)
    commit(instance, "billing", "orders", 0, 5)
    measure(instance, WISH, budget_ms=FOR_EVER_MS)
    calls: Counter[str] = Counter()
    counted = with_stores(instance, cursors=Counted(instance.stores.cursors, "cursors", calls))
    assert told(counted) == {}
    assert calls == {"cursors.get": 2}


def test_consumers_are_left_alone_when_only_topics_are_wanted(instance: Instance) -> None:
    filled_topic(instance, records=5)
    commit(instance, "billing", "orders", 0, 3)
    calls: Counter[str] = Counter()
    counted = with_stores(instance, groups=Counted(instance.stores.groups, "groups", calls))
    assert told(counted, MeasureWish(topics_max=10, consumers_max=20, topics_only=True)) == {}
    assert not calls


def test_next_run_goes_on_behind_the_last_consumer(instance: Instance) -> None:
    filled_topic(instance, records=1)
    for number in range(101):
        commit(instance, f"group-{number:03}", "orders", 0, 0)
    first = measure(instance, WISH, budget_ms=0)
    assert (first.consumers, first.is_finished) == (100, False)
    second = measure(instance, WISH, budget_ms=FOR_EVER_MS)
    assert (second.consumers, second.is_finished) == (1, True)


def test_consumers_are_measured_though_topics_cannot_be_ranked(instance: Instance) -> None:
    filled_topic(instance, records=5)
    commit(instance, "billing", "orders", 0, 3)

    def fail(*_arguments: object) -> object:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")

    broken = with_stores(instance, topics=Intercepted(instance.stores.topics, list=fail))
    done = measure(broken, WISH, budget_ms=FOR_EVER_MS)
    assert (done.failures, [each.records for each in done.lags]) == (1, [2])


def test_place_of_a_consumer_that_is_deleted_while_it_is_behind_is_free_in_the_next_hour(
    instance: Instance, clock: SteppedClock
) -> None:
    filled_topic(instance, records=5)
    one_place = replace(WISH, consumers_max=1)
    commit(instance, "gone", "orders", 0, 0)
    assert [*told(instance, one_place)] == ["group/gone"]
    delete_group(instance, "gone")
    commit(instance, "billing", "orders", 0, 3)
    clock.sleep_ms(1_000)
    assert [*told(instance, one_place)] == [f"group/{OTHER}"]
    clock.sleep_ms(3_600_000)
    assert [*told(instance, one_place)] == ["group/billing", f"group/{OTHER}"]
