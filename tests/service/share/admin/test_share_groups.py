"""Share groups are created, altered, listed, described, reset and deleted."""

from functools import partial
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.limits import LOG_START_GRACE_MS, TIERING_MS_MAX
from penstock_core.outcomes import outcome_of
from penstock_core.records.codec import NewRecord, encode
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.share_state import ShareKey
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.retention.retain import retain
from penstock_service.share.admin.describe_share_group import (
    describe_share_group,
    describe_share_record,
    list_share_groups,
)
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, delete_share_group, reset_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.list_offsets import OffsetSpec, ResetOffset
from tests.service.share.sharing import GROUP, finish, new_group, offsets_in, state_of, take
from tests.support.interleaving import interrupted_before
from tests.support.refusals import refused
from tests.support.service import SteppedClock, another_instance, batch, entry, filled_topic, new_topic, send


def test_group_from_the_latest_record_begins_where_the_log_ended_when_it_was_made(instance: Instance) -> None:
    filled_topic(instance, partitions=2, records=3)
    new_group(instance, start="latest")
    for partition in range(2):
        send(instance, "orders", "new", partition=partition)
    assert sorted(offsets_in(take(instance)) + offsets_in(take(instance))) == [(0, 3), (1, 3)]


def test_partitions_and_topics_that_are_added_later(instance: Instance) -> None:
    filled_topic(instance, records=3)
    filled_topic(instance, "returns", records=3)
    new_group(instance, start="latest")
    alter_topic(instance, "orders", 2, {})
    send(instance, "orders", "first of a new partition", partition=1)
    put_share_group(instance, GROUP, ["orders", "returns"], {})
    later = another_instance(instance)
    assert offsets_in(take(later)) == [(1, 0)]
    assert offsets_in(take(later)) == [], "the added topic begins at its end"


def test_group_from_the_latest_record_begins_at_the_first_one_of_a_topic_that_was_made_anew(
    instance: Instance, clock: SteppedClock
) -> None:
    filled_topic(instance, records=3)
    new_group(instance, start="latest")
    clock.sleep_ms(1_000)
    delete_topic(instance, "orders")
    filled_topic(instance, records=2)
    put_share_group(instance, GROUP, ["orders"], {})
    assert offsets_in(take(another_instance(instance))) == [(0, 0), (0, 1)]


def test_settings_that_are_left_out_stay_and_null_is_the_default(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, lock_ms=5_000, in_flight_max=10)
    group, is_new = put_share_group(instance, GROUP, None, {"lock_ms": None})
    assert not is_new
    assert (group.config.lock_ms, group.config.in_flight_max, group.version) == (30_000, 10, 1)
    assert put_share_group(instance, GROUP, None, {})[0].version == 1


@pytest.mark.parametrize(
    ("topics", "config", "code"),
    [
        (None, {}, ErrorCode.INVALID_REQUEST),
        (["bills"], {}, ErrorCode.UNKNOWN_TOPIC),
        (["orders"], {"dead_letter_topic": "orders"}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"dead_letter_topic": "bills"}, ErrorCode.UNKNOWN_TOPIC),
        (["orders"], {"deliveries_max": 3}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"lock_ms": 1}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"lok_ms": 1_000}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_wrong_group_is_refused(
    instance: Instance, topics: list[str] | None, config: dict[str, Any], code: ErrorCode
) -> None:
    new_topic(instance)
    refused(code, lambda: put_share_group(instance, GROUP, topics, config))
    refused(ErrorCode.UNKNOWN_SHARE_GROUP, lambda: take(instance))


@pytest.mark.parametrize("change", [{"ordering": "key"}, {"start": "latest"}])
def test_order_and_start_stay(instance: Instance, change: dict[str, Any]) -> None:
    new_topic(instance)
    new_group(instance)
    refused(ErrorCode.INVALID_CONFIG, lambda: put_share_group(instance, GROUP, None, change))


def test_dead_letter_topic_is_not_given_up_while_records_wait_for_it(instance: Instance) -> None:
    filled_topic(instance, records=1)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    finish(instance, take(instance), AckType.REJECT)
    if state_of(instance).waits:
        refused(ErrorCode.INVALID_CONFIG, lambda: put_share_group(instance, GROUP, None, {"dead_letter_topic": None}))


def test_groups_are_listed_in_pages(instance: Instance) -> None:
    new_topic(instance)
    for name in ("c", "a", "b"):
        put_share_group(instance, name, ["orders"], {})
    first, after = list_share_groups(instance, 2, "")
    assert ([group.name for group in first], after) == (["a", "b"], "b")
    assert [[group.name for group in page] for page, _ in [list_share_groups(instance, 2, "b")]] == [["c"]]
    assert list_share_groups(instance, 2, "b")[1] is None


def test_description_counts_what_is_in_flight_available_and_waiting(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    finish(instance, take(instance, 1))
    finish(instance, take(instance, 2), AckType.RELEASE, delay_ms=60_000)
    clock.sleep_ms(7_000)
    take(instance, 3)
    _, [partition], after = describe_share_group(instance, GROUP, "", 10)
    assert after is None
    assert (partition.start_offset, partition.position) == (1, 6)
    assert (partition.in_flight, partition.available, partition.waiting, partition.lag) == (3, 4, 2, 9)
    assert partition.oldest_age_ms == 7_000


def test_age_of_a_record_does_not_begin_anew_when_it_moves_to_the_archive(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance)
    new_group(instance)
    data = batch("a", timestamp_ms=clock.now_ms())
    produce(instance, [entry("orders", 0, data)], Acks.QUORUM).all_ok()
    clock.time_ms += TIERING_MS_MAX
    tier(instance, budget_ms=10**9)
    clock.time_ms += 1_000
    _, [partition], _ = describe_share_group(instance, GROUP, "", 10)
    assert partition.oldest_age_ms == TIERING_MS_MAX + 1_000


def test_description_by_key_counts_what_is_behind_another_record_as_waiting(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, ordering="key")
    records = [NewRecord(1_000, key, b"v") for key in (b"a", b"a", b"b")]
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=encode(records))], Acks.QUORUM).all_ok()
    held = take(instance)
    _, [partition], _ = describe_share_group(instance, GROUP, "", 10)
    assert (partition.in_flight, partition.available, partition.waiting) == (2, 0, 1)
    finish(instance, held, AckType.RELEASE, delay_ms=0)
    _, [partition], _ = describe_share_group(instance, GROUP, "", 10)
    assert (partition.in_flight, partition.available, partition.waiting) == (0, 2, 1)


def test_description_comes_in_pages(instance: Instance) -> None:
    new_topic(instance, "a", 2)
    new_topic(instance, "b", 12)
    new_group(instance, "b", "a")
    found, after = [], ""
    while True:
        _, page, following = describe_share_group(instance, GROUP, after, 5)
        found += [(each.topic, each.key.partition) for each in page]
        if following is None:
            break
        after = following
    assert found == [("a", 0), ("a", 1)] + [("b", number) for number in range(12)]


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        (ShareResetTo(end=OffsetSpec.EARLIEST), 0),
        (ShareResetTo(end=OffsetSpec.LATEST), 10),
        (ShareResetTo(offset=4), 4),
        (ShareResetTo(timestamp_ms=0), 0),
        (ShareResetTo(timestamp_ms=10**15), 10),
    ],
)
def test_reset_goes_to_its_place(instance: Instance, to: ShareResetTo, offset: int) -> None:
    filled_topic(instance, partitions=2, records=10)
    new_group(instance)
    take(instance, 3), take(instance, 3)
    results = reset_share_group(instance, GROUP, "orders", to)
    assert [(number, result.new_offset) for number, result in results if isinstance(result, ResetOffset)] == [
        (0, offset),
        (1, offset),
    ]
    assert [state_of(instance, partition).position for partition in range(2)] == [offset, offset]


@pytest.mark.parametrize("to", [ShareResetTo(end=OffsetSpec.LATEST), ShareResetTo(offset=4)])
def test_dry_run_of_a_reset_tells_what_it_would_do_and_keeps_the_locks(instance: Instance, to: ShareResetTo) -> None:
    filled_topic(instance, partitions=2, records=10)
    new_group(instance)
    held = take(instance, 3)
    before = instance.stores.share.find_states(keys_of(instance))
    planned = reset_share_group(instance, GROUP, "orders", to, is_dry_run=True)
    assert instance.stores.share.find_states(keys_of(instance)) == before
    assert [each.result for each in finish(instance, held)] == [AckResult.OK]
    assert reset_share_group(instance, GROUP, "orders", to) == planned


def test_dry_run_of_a_reset_refuses_what_the_reset_refuses(instance: Instance) -> None:
    filled_topic(instance, partitions=1, records=2)
    new_group(instance)
    [(_, bad)] = reset_share_group(instance, GROUP, "orders", ShareResetTo(offset=3), is_dry_run=True)
    assert isinstance(bad, PenstockError)
    assert bad.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_description_tells_which_consumers_hold_locks(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, partitions=1, records=10)
    new_group(instance)
    take(instance, 3, consumer_id="worker-1"), take(instance, 4, consumer_id="worker-2"), take(instance, 1)
    _, [partition], _ = describe_share_group(instance, GROUP, "", 10)
    assert [(each.consumer, each.records) for each in partition.holders] == [("worker-2", 4), ("worker-1", 3), ("", 1)]
    clock.sleep_ms(60_000)
    _, [partition], _ = describe_share_group(instance, GROUP, "", 10)
    assert (partition.holders, partition.holders_left_out) == ([], 0)


def keys_of(instance: Instance) -> list[ShareKey]:
    group, topic = instance.share_group_cache.read_through(GROUP), instance.topic_cache.read_through("orders")
    return [ShareKey(group.share_group_id, topic.topic_id, number) for number in topic.all_partitions()]


def test_reset_beyond_the_log_is_refused_by_partition(instance: Instance) -> None:
    new_topic(instance, partitions=2)
    send(instance, "orders", "a", "b", partition=1)
    new_group(instance)
    (_, bad), (_, good) = reset_share_group(instance, GROUP, "orders", ShareResetTo(offset=2))
    assert isinstance(bad, PenstockError)
    assert bad.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert good == ResetOffset(old_offset=None, new_offset=2)  # type: ignore[arg-type]
    assert offsets_in(take(instance)) == []


def test_group_that_is_made_anew_begins_anew(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    finish(instance, take(instance))
    delete_share_group(instance, GROUP)
    refused(ErrorCode.UNKNOWN_SHARE_GROUP, lambda: take(instance))
    refused(ErrorCode.UNKNOWN_SHARE_GROUP, lambda: delete_share_group(instance, GROUP))
    new_group(instance)
    assert len(offsets_in(take(instance))) == 3


def test_lock_of_a_group_or_topic_before_it_was_made_anew_is_lost_and_never_done(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    held = take(instance)
    delete_share_group(instance, GROUP)
    new_group(instance)
    finish(instance, take(instance))
    assert [each.result for each in finish(instance, held)] == [AckResult.LOST]
    send(instance, "orders", "x")
    held = take(instance)
    delete_topic(instance, "orders")
    filled_topic(instance, records=5)
    put_share_group(instance, GROUP, ["orders"], {})
    later = another_instance(instance)
    finish(later, take(later))
    assert [each.result for each in finish(later, held)] == [AckResult.LOST]


def test_topic_that_is_made_anew_is_another_one_until_the_group_names_it_again(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    finish(instance, take(instance))
    delete_topic(instance, "orders")
    filled_topic(instance, records=2)
    assert offsets_in(take(another_instance(instance))) == []
    put_share_group(instance, GROUP, ["orders"], {})
    assert len(offsets_in(take(another_instance(instance)))) == 2


@pytest.mark.parametrize("place", range(8))
def test_group_that_is_deleted_under_an_acquire_hands_out_nothing_afterwards(instance: Instance, place: int) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    other = another_instance(instance)
    acquirer = interrupted_before(instance, place, lambda: delete_share_group(other, GROUP))
    failed = outcome_of(lambda _: take(acquirer), None)
    assert not isinstance(failed, PenstockError) or failed.code is ErrorCode.UNKNOWN_SHARE_GROUP
    new_group(instance)
    assert len(offsets_in(take(instance))) == 3


def test_states_in_partitions_that_went_go_with_the_group(instance: Instance, clock: SteppedClock) -> None:
    hour_ms = 3_600_000
    new_topic(instance, partitions=4, retention_ms=2 * hour_ms)
    for partition in range(4):
        send(instance, "orders", "a", partition=partition)
    group_id = new_group(instance)
    while offsets_in(held := take(instance)):
        finish(instance, held)
    alter_topic(instance, "orders", 2, {})
    clock.sleep_ms(3 * hour_ms)
    for _ in range(4):
        retain(instance, budget_ms=60_000.0)
        clock.sleep_ms(2 * LOG_START_GRACE_MS)
    topic = instance.topic_cache.read_through("orders")
    assert topic.partitions == 2
    keys = [ShareKey(group_id, topic.topic_id, Partition(number)) for number in range(4)]
    delete_share_group(another_instance(instance), GROUP)
    assert instance.stores.share.find_states(keys) == {}


@pytest.mark.parametrize("place", range(8))
def test_reset_beside_new_partitions_is_done_or_says_so(instance: Instance, place: int) -> None:
    filled_topic(instance, partitions=2, records=2)
    new_group(instance)

    def grow() -> None:
        alter_topic(another_instance(instance), "orders", 4, {})

    racing = interrupted_before(another_instance(instance), place, grow)
    found = outcome_of(partial(reset_share_group, racing, GROUP, "orders"), ShareResetTo(timestamp_ms=1))
    assert not isinstance(found, PenstockError) or found.code is ErrorCode.CONCURRENT_UPDATE


def test_state_of_a_record_follows_its_lock_to_its_end(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=3)
    new_topic(instance, "dead")
    pause = {"retry_backoff_ms_min": 4_000, "retry_backoff_ms_max": 4_000}
    new_group(instance, lock_ms=10_000, deliveries_max=2, dead_letter_topic="dead", **pause)

    def state(offset: int) -> tuple[str, int | None, bool]:
        _, _, found = describe_share_record(instance, GROUP, "orders", 0, offset)
        return found.state, found.deliveries, found.is_dead

    assert state(0) == ("available", 0, False)
    take(instance, 1)
    assert state(0) == ("locked", 1, False)
    assert state(1) == ("available", 0, False)
    clock.sleep_ms(10_000)
    assert state(0) == ("waiting", 1, False)
    clock.sleep_ms(4_000)
    assert state(0) == ("available", 1, False)
    assert (0, 0) in offsets_in(take(instance, 3)) + offsets_in(take(instance, 3))
    assert state(0) == ("locked", 2, False)
    clock.sleep_ms(20_000)
    assert state(0) == ("waiting", 2, True), "no group delivers it a third time"


def test_record_behind_an_unfinished_one_of_its_key_waits(instance: Instance) -> None:
    new_topic(instance, "orders")
    keyed = encode([NewRecord(key=b"k", value=value, timestamp_ms=1) for value in (b"a", b"b")])
    produce(instance, [entry("orders", 0, keyed)], Acks.QUORUM).all_ok()
    new_group(instance, ordering="key", retry_backoff_ms_min=60_000, retry_backoff_ms_max=60_000)
    acquired = take(instance, 2)
    finish(instance, acquired, AckType.RELEASE)
    states = [describe_share_record(instance, GROUP, "orders", 0, offset)[2].state for offset in (0, 1)]
    assert states == ["waiting", "waiting"]
    counts = describe_share_group(instance, GROUP, "", 10)[1][0]
    assert (counts.available, counts.waiting) == (0, 2)
