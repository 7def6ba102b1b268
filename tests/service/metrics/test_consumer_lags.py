"""The lag and the age of every kind of consumer, in memory."""

from collections import Counter

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.metrics.lag_memory import Consumer, ConsumerKind, ConsumerLag
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.metrics.measure import consumer_lags
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from tests.service.push.admin.setting import create
from tests.support.service import (
    Intercepted,
    SteppedClock,
    counted_instance,
    filled_topic,
    new_topic,
    send,
    with_stores,
)

FOR_EVER_MS = 1e9


def commit(instance: Instance, group: str, topic: str, partition: int, offset: int) -> None:
    assert commit_offsets(instance, group, [CommitEntry(topic=topic, partition=partition, offset=offset)]) == (None,)


def lags_of(instance: Instance) -> dict[str, tuple[int, int]]:
    run = consumer_lags(instance, "", FOR_EVER_MS)
    assert (run.failures, run.after) == (0, "")
    return {str(each.consumer): (each.records, each.oldest_age_ms) for each in run.lags}


def test_lag_is_summed_over_partitions_and_the_age_is_that_of_the_oldest_record(
    instance: Instance, clock: SteppedClock
) -> None:
    filled_topic(instance, "orders", partitions=2, records=10)
    commit(instance, "billing", "orders", 0, 10)
    commit(instance, "billing", "orders", 1, 4)
    put_share_group(instance, "workers", ["orders"], {"start": "earliest"})
    create(instance, "orders", start="earliest")
    clock.sleep_ms(5_000)
    send(instance, "orders", "late", partition=0)
    clock.sleep_ms(2_000)
    assert lags_of(instance) == {
        "group/billing": (7, 7_000),
        "share_group/workers": (21, 7_000),
        "subscription/packing": (21, 7_000),
    }


def test_consumer_at_the_end_has_neither_lag_nor_age(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=3)
    commit(instance, "billing", "orders", 0, 3)
    clock.sleep_ms(60_000)
    assert lags_of(instance) == {"group/billing": (0, 0)}


def test_generation_that_waits_counts(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, "orders", 1, ordering_on_change="wait")
    send(instance, "orders", "a")
    commit(instance, "billing", "orders", 0, 0)
    alter_topic(instance, "orders", 2, {})
    clock.sleep_ms(1_000)
    for number in (1, 2, 2):
        send(instance, "orders", "b", partition=number)
    commit(instance, "billing", "orders", 0, 1)
    clock.sleep_ms(2_000)
    assert lags_of(instance) == {"group/billing": (3, 2_000)}


def test_records_that_retention_removed_do_not_count(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    for _ in range(3):
        send(instance, "orders", "value")
        clock.sleep_ms(1_000)
    commit(instance, "billing", "orders", 0, 0)
    truncate(instance, "orders", {0: 2})
    assert lags_of(instance) == {"group/billing": (1, 1_000)}


def test_age_of_a_record_in_a_page_costs_one_query_and_no_read_of_a_segment(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance)
    for number in range(60):
        send(instance, "orders", str(number))
        clock.sleep_ms(1_000)
    commit(instance, "billing", "orders", 0, 1)
    calls: Counter[str] = Counter()
    run = consumer_lags(counted_instance(instance, calls), "", FOR_EVER_MS)
    assert [(each.records, each.oldest_age_ms) for each in run.lags] == [(59, 59_000)]
    assert (calls["log.pages"], calls["log.heads"], calls["zone.get"]) == (1, 1, 0)


def test_group_of_a_topic_that_is_gone_is_not_behind(instance: Instance) -> None:
    filled_topic(instance, records=3)
    commit(instance, "billing", "orders", 0, 1)
    delete_topic(instance, "orders")
    assert lags_of(instance) == {"group/billing": (0, 0)}


def test_run_goes_on_behind_the_page_at_which_its_time_was_up(instance: Instance) -> None:
    filled_topic(instance, records=3)
    for number in range(150):
        commit(instance, f"group-{number:03}", "orders", 0, 1)
    put_share_group(instance, "workers", ["orders"], {"start": "earliest"})
    first = consumer_lags(instance, "", 0)
    assert (len(first.lags), first.after) == (100, "group/group-099")
    second = consumer_lags(instance, first.after, 0)
    assert (len(second.lags), second.after) == (50, "group/group-149")
    third = consumer_lags(instance, second.after, FOR_EVER_MS)
    assert third.lags == [
        ConsumerLag(consumer=Consumer(ConsumerKind.SHARE_GROUP, "workers"), records=3, oldest_age_ms=0)
    ]
    assert third.after == ""


def test_consumer_that_cannot_be_read_fails_alone(instance: Instance) -> None:
    filled_topic(instance, records=3)
    for name in ("a", "b"):
        commit(instance, name, "orders", 0, 1)

    def fail_a(original: object, group: str) -> object:
        if group == "a":
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")
        return original(group)  # type: ignore[operator]  # the port's method

    broken = with_stores(instance, groups=Intercepted(instance.stores.groups, leases=fail_a))
    run = consumer_lags(broken, "", FOR_EVER_MS)
    assert ([each.consumer.name for each in run.lags], run.failures) == (["b"], 1)
    assert instance.telemetry.take()[0]["lag_unknown"] == 1
