"""What an instance knows of tenants: each batch is read once, and no more is remembered than is needed."""

from collections import Counter

import pytest

from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.share_state import ShareKey
from penstock_core.share.tenants import FINISHED, NO_TENANT, KnownTenants
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.caches import TenantCache
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acquire.read_tenants import ReadTenants, read_tenants
from penstock_service.share.share_partitions import SharePartition
from tests.service.share.sharing import GROUP, finish, new_group, state_of, take
from tests.support.poison import undecodable_batch
from tests.support.service import another_instance, counted_instance, head_of, key_of, new_topic

BUDGET = 10_000_000


def put(instance: Instance, tenants: str) -> None:
    data = encode([NewRecord(1_000, each.encode(), b"v") for each in tenants])
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=data)], Acks.QUORUM).all_ok()


@pytest.fixture
def fair(instance: Instance) -> Instance:
    new_topic(instance)
    new_group(instance, sharing="fair")
    return instance


def read(instance: Instance, budget: int = BUDGET) -> ReadTenants:
    group = instance.share_group_cache.read_through(GROUP)
    head, state = head_of(instance, "orders"), state_of(instance)
    key = ShareKey(group.share_group_id, *key_of(instance, "orders"))
    partition = SharePartition(topic=next(iter(group.topics)), key=key, head=head, state=state)
    return read_tenants(instance, group.config, partition, state, DecodeBudget(budget))


def test_each_batch_is_read_once(fair: Instance) -> None:
    put(fair, "nna")
    take(fair, 1)
    put(fair, "nb")
    counts: Counter[str] = Counter()
    counted = counted_instance(fair, counts)
    first, again = read(counted), read(counted)
    assert (len(first.batches), len(again.batches), counts["zone.get"]) == (2, 0, 2)
    assert again.known.count(((0, 5),)) == first.known.count(((0, 5),))
    assert sorted(first.known.count(((0, 5),)).values()) == [1, 1, 3]


def test_what_is_remembered_of_one_partition_is_of_no_other_one() -> None:
    found = []
    for tenants in ("nnnnab", "abnnnn"):
        fair = memory_instance()
        new_topic(fair)
        new_group(fair, sharing="fair")
        put(fair, tenants)
        take(fair, 1, nonce="nonce-01")
        read(fair)
        known = read(fair).known
        found.append(known.first_of(((0, 6),), 9) == KnownTenants(known.batches).first_of(((0, 6),), 9))
    assert found == [True, True]


def test_records_in_locks_and_waits_are_read_again_by_a_cold_instance(fair: Instance) -> None:
    put(fair, "nnnnab")
    take(fair, 3)
    assert NO_TENANT not in read(another_instance(fair)).known.count(((0, 6),))


def test_a_spent_budget_reads_the_rest_later(fair: Instance) -> None:
    put(fair, "n")
    take(fair, 1)
    for _ in range(5):
        put(fair, "na")
    other = another_instance(fair)
    ends = [read(other, budget=1).known.end_from(1) for _ in range(20)]
    assert (ends[0] < 11, ends[-1]) == (True, 11)
    assert read(other).known.count(((0, 11),)).total() == 11


def test_records_that_the_filter_does_not_take_and_undecodable_ones(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, sharing="fair", filter={"tag": ["x"]})
    data = encode([NewRecord(1_000, b"n", b"v", (("tag", each),)) for each in (b"x", b"y", b"x")])
    for each in (data, undecodable_batch()):
        produce(instance, [ProduceEntry(topic="orders", partition=0, data=each)], Acks.QUORUM).all_ok()
    take(instance, 1)
    known = read(another_instance(instance)).known
    assert known.finished(0, 3) == ((1, 2),)
    assert known.count(((3, head_of(instance, "orders").next_offset),)).keys() == {NO_TENANT}
    assert FINISHED not in known.count(((0, 3),))


def test_finished_batches_are_forgotten_also_behind_a_lock_that_stays(fair: Instance) -> None:
    put(fair, "s")
    take(fair, 1)
    for _ in range(20):
        put(fair, "nnnnn")
        finish(fair, take(fair, 5))
    put(fair, "n")
    known = read(fair).known
    assert [each.base_offset for each in known.batches] == [0, 101]


def test_the_cache_keeps_the_partitions_of_late_and_one_at_least(fair: Instance) -> None:
    put(fair, "n")
    take(fair, 1)
    known = read(fair).known
    cache = TenantCache(bytes_max=2 * known.size)
    for name in "abc":
        cache.put(name, known)
        cache.find("a")
    assert [cache.find(name) is known for name in "abc"] == [True, False, True]
    small = TenantCache(bytes_max=1)
    small.put("a", known)
    assert small.find("a") is known
