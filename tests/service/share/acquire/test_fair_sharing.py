"""Fair sharing: an acquire takes records of the tenants that have the least in flight, and loses none."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.draft import ShareOutcome
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.admin.describe_share_group import describe_share_group
from penstock_service.topics.alter_topic import alter_topic
from tests.service.share.sharing import GROUP, entries_of, finish, new_group, offsets_in, state_of, take, values_in
from tests.support.service import Intercepted, SteppedClock, another_instance, head_of, new_topic
from tests.support.tables import items_of, tables_of

FAIR = "nonce-01"  # its acquires go by shares


def put(instance: Instance, *tenants: str, each: int = 1, partition: int = 0) -> None:
    """A batch with one record for each tenant, whose value is the tenant's name; "" is a record without a key."""
    records = [
        NewRecord(1_000, name.encode() or None, name.encode(), (("tenant", name.encode()),))
        for name in tenants
        for _ in range(each)
    ]
    produce(instance, [ProduceEntry(topic="orders", partition=partition, data=encode(records))], Acks.QUORUM).all_ok()


@pytest.fixture
def fair(instance: Instance) -> Instance:
    new_topic(instance)
    new_group(instance, sharing="fair")
    return instance


def tenants_in(acquired: Acquired) -> Counter[str]:
    return Counter(values_in(acquired))


def drained(instance: Instance) -> list[int]:
    """The offsets of all that comes, each of which is accepted."""
    found: list[int] = []
    while (acquired := take(instance, 7)).partitions:
        found += [offset for _, offset in offsets_in(acquired)]
        finish(instance, acquired)
    return found


def test_an_acquire_takes_one_record_of_each_tenant_before_two_of_one(fair: Instance) -> None:
    put(fair, *["noisy"] * 50, "a", "b", "b", "c")
    assert tenants_in(take(fair, 4, nonce=FAIR)) == {"noisy": 1, "a": 1, "b": 1, "c": 1}
    assert (state_of(fair).open, state_of(fair).position) == (54, 54)
    assert fair.telemetry.take()[0]["share_records_passed_over"] == 50


def test_a_header_tells_the_tenant_if_the_group_says_so(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, sharing="fair", fair_by="tenant")
    records = [NewRecord(1_000, b"key", each, (("tenant", each),)) for each in (b"n", b"n", b"n", b"a")]
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=encode(records))], Acks.QUORUM).all_ok()
    assert tenants_in(take(instance, 2, nonce=FAIR)) == {"n": 1, "a": 1}


def test_a_tenant_with_records_in_flight_gives_way(fair: Instance) -> None:
    put(fair, *["noisy"] * 20)
    assert tenants_in(take(fair, 5)) == {"noisy": 5}
    put(fair, "a", "a", "b")
    assert tenants_in(take(fair, 3, nonce=FAIR)) == {"a": 2, "b": 1}
    assert tenants_in(take(fair, 3)) == {"noisy": 3}


def test_nothing_is_lost_and_nothing_comes_twice(fair: Instance) -> None:
    for _ in range(5):
        put(fair, *"nnnanbnnnncnn")
    assert sorted(drained(fair)) == [*range(65)]
    assert (state_of(fair).open, state_of(fair).position) == (0, 65)


def test_records_that_are_passed_over_come_again_at_once_and_uncounted(fair: Instance) -> None:
    put(fair, *"nnnnab")
    assert tenants_in(take(fair, 3, nonce=FAIR)) == {"n": 1, "a": 1, "b": 1}
    again = take(fair, 3)
    assert tenants_in(again) == {"n": 3}
    assert [lock.grant.lock.deliveries for each in again.partitions for lock in each.locks] == [1]


def test_released_records_count_their_deliveries_and_wait_as_without_shares(
    fair: Instance, clock: SteppedClock
) -> None:
    put(fair, *"nna")
    finish(fair, take(fair, 2, nonce=FAIR), AckType.RELEASE)
    assert tenants_in(take(fair)) == {"n": 1}
    clock.time_ms += 10_000
    again = take(fair)
    assert tenants_in(again) == {"n": 1, "a": 1}
    assert {lock.grant.lock.deliveries for each in again.partitions for lock in each.locks} == {2}


def test_a_cold_instance_shares_as_a_warm_one(fair: Instance) -> None:
    put(fair, *["noisy"] * 20)
    take(fair, 5)
    put(fair, "a", "b", "c")
    assert tenants_in(take(another_instance(fair), 3, nonce=FAIR)) == {"a": 1, "b": 1, "c": 1}


def test_a_refused_update_is_planned_anew(fair: Instance) -> None:
    put(fair, *"nnnnnnnnnnabcdefgh", *"n" * 10)
    others: list[Acquired] = []

    def disturbed(update: Callable[..., ShareOutcome], *arguments: Any) -> ShareOutcome:
        if len(others) < 3:
            others.append(take(another_instance(fair), 2, nonce=f"disturb{len(others)}"))
        return update(*arguments)

    acquired = take(another_instance(fair, share=Intercepted(fair.stores.share, update=disturbed)), 3, nonce=FAIR)
    assert (len(others) > 1, len(offsets_in(acquired))) == (True, 3)
    found = [offset for each in (*others, acquired) for _, offset in offsets_in(each)]
    assert sorted([*found, *drained(fair)]) == [*range(28)]


def test_an_acknowledgement_goes_with_the_acquire(fair: Instance) -> None:
    put(fair, *"nnnnab")
    first = take(fair, 2, nonce=FAIR)
    second = take(fair, 2, acknowledge=entries_of(first))
    assert [outcome.result for outcome in second.acknowledged] == [AckResult.OK] * len(second.acknowledged)
    assert state_of(fair).open == 6 - 2


def test_a_repeat_gets_the_locks_of_its_first_try(fair: Instance) -> None:
    put(fair, *"nnnnab")
    first = take(fair, 3, nonce=FAIR)
    assert offsets_in(take(fair, 3, nonce=FAIR, is_repeat=True)) == offsets_in(first)


def test_records_that_the_filter_does_not_take_are_finished_and_have_no_share(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, sharing="fair", filter={"tenant": ["a", "b"]})
    put(instance, *"nnnnnannnnb", *["n"] * 10)
    assert tenants_in(take(instance, 2, nonce=FAIR)) == {"a": 1, "b": 1}
    assert (state_of(instance).open, state_of(instance).position) == (2, 21)
    put(instance, *"nnn")
    assert not take(instance).partitions
    assert state_of(instance).position == 24


def test_records_that_came_back_and_that_a_new_filter_does_not_take_are_finished(fair: Instance) -> None:
    put(fair, *"nnnnnab")
    held = take(fair, 3, nonce=FAIR)
    assert tenants_in(held) == {"n": 1, "a": 1, "b": 1}
    new_group(fair, sharing="fair", filter={"tenant": ["a", "b"]})
    assert take(fair).next_available_ms != 0, "a consumer comes again at once for what it never gets"
    finish(fair, held)
    assert (state_of(fair).open, take(fair).next_available_ms) == (0, None)


def test_a_record_that_is_passed_over_may_expire(fair: Instance, clock: SteppedClock) -> None:
    old = (("penstock-expires-at", b"%013d" % 1_000_000_005_000),)
    clock.time_ms = 1_000_000_000_000
    records = [NewRecord(1_000, b"n", b"n", old) for _ in range(4)] + [NewRecord(1_000, b"a", b"a")]
    entry = ProduceEntry(topic="orders", partition=0, data=encode(records), may_expire=True)
    produce(fair, [entry], Acks.QUORUM).all_ok()
    assert tenants_in(take(fair, 2, nonce=FAIR)) == {"n": 1, "a": 1}
    clock.time_ms += 5_000
    assert not take(fair).partitions
    assert (state_of(fair).expired, state_of(fair).open) == (3, 2)


def test_rejected_records_go_to_the_dead_letter_topic_and_passed_ones_do_not(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, sharing="fair", dead_letter_topic="dead", deliveries_max=1)
    put(instance, *"nnnna")
    finish(instance, take(instance, 2, nonce=FAIR), AckType.REJECT)
    assert tenants_in(take(instance)) == {"n": 3}
    assert head_of(instance, "dead").next_offset == 2


def test_priorities_come_before_shares(instance: Instance) -> None:
    for topic in ("low", "high"):
        new_topic(instance, topic, partitions=1)
    new_group(instance, "high", "low", sharing="fair", topic_order="listed")
    for topic in ("low", "high"):
        records = [NewRecord(1_000, each, each + topic[:1].encode()) for each in (b"n", b"n", b"n", b"a")]
        produce(instance, [ProduceEntry(topic=topic, partition=0, data=encode(records))], Acks.QUORUM).all_ok()
    assert tenants_in(take(instance, 2, nonce=FAIR)) == {"nh": 1, "ah": 1}
    assert tenants_in(take(instance, 5)) == {"nh": 2, "nl": 2, "al": 1}


def test_partitions_that_drain_and_those_of_a_later_generation_share_each_for_itself(instance: Instance) -> None:
    new_topic(instance, partitions=2)
    alter_topic(instance, "orders", None, {"ordering_on_change": "wait"})
    new_group(instance, sharing="fair")
    put(instance, *"nnnnna")
    alter_topic(instance, "orders", 1, {})
    instance.topic_cache.read_through("orders")
    put(instance, *"nnnb", partition=2)
    found = Counter[str]()
    while (acquired := take(instance, 3)).partitions:
        found += tenants_in(acquired)
        finish(instance, acquired)
    assert found == {"n": 8, "a": 1, "b": 1}


def test_a_group_may_begin_and_end_to_share(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    new_group(instance)
    put(instance, *"nnnnab")
    assert tenants_in(take(instance, 2, nonce=FAIR)) == {"n": 2}
    new_group(instance, sharing="fair")
    clock.time_ms += 20_000
    assert tenants_in(take(another_instance(instance), 2, nonce="nonce-03")) == {"a": 1, "b": 1}
    assert stored_format(instance) == {"N": "2"}
    new_group(instance, sharing="any")
    assert stored_format(instance) is None, "older releases may serve it again"
    assert tenants_in(take(another_instance(instance), 2)) == {"n": 2}


def stored_format(instance: Instance) -> object:
    return items_of(tables_of(instance))["groups", "#share_groups", GROUP].get("format_version")


def test_a_full_answer_leaves_no_lock_behind(fair: Instance) -> None:
    for tenant in "abcdef":
        put(fair, tenant, tenant)
    acquired = take(fair, 6, nonce=FAIR, bytes_max=1)
    assert len(offsets_in(acquired)) == sum(lock.records.count for lock in state_of(fair).locks.values()) <= 2


def test_a_description_tells_how_many_records_gave_way_and_the_first_one(fair: Instance) -> None:
    put(fair, *"nnnnab")
    take(fair, 3, nonce=FAIR)
    _, found, _ = describe_share_group(fair, GROUP, "", 100)
    assert [(each.passed_over, each.passed_over_offset, each.available) for each in found] == [(3, 1, 3)]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"sharing": "fair", "ordering": "key"}, "take one of the two"),
        ({"fair_by": "tenant"}, "it is for sharing=fair"),
        ({"sharing": "fair", "fair_by": ""}, "1 to 128 characters"),
        ({"sharing": "fair", "fair_by": "x" * 129}, "1 to 128 characters"),
        ({"sharing": "fair", "fair_by": 7}, "must be key, or the name of a header"),
        ({"sharing": "unfair"}, "must be one of any, fair"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_reason(
    instance: Instance, settings: dict[str, object], why: str
) -> None:
    new_topic(instance)
    with pytest.raises(PenstockError, match=why) as refused:
        new_group(instance, **settings)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
