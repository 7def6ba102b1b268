"""What the queue features do where they meet others: docs/contributing/queue-features.md has all pairs."""

import pytest

from penstock_core.ids import Nonce
from penstock_core.limits import SCHEDULE_AHEAD_MS
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.mirror.move_topic import move_topic
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.quotas.admit import allow_fetch
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.schedules.put_schedule import find_schedule
from penstock_service.share.acquire.acquire import AcquireWish, acquire_within_quotas
from penstock_service.transactions.begin_transactions import TransactionPart
from penstock_service.transactions.commit_transaction import commit_transaction
from tests.service.mirror.stages import Stages
from tests.service.mirror.test_mirrored_log import stages_of
from tests.service.schedules.test_run_schedules import put as put_schedule
from tests.service.schedules.test_run_schedules import run as run_schedules
from tests.service.share.sharing import GROUP, finish, locks_in, new_group, offsets_in, state_of, take, values_in
from tests.service.transactions.test_shared_records import acceptances
from tests.service.transactions.test_transactions import begin
from tests.support.service import SteppedClock, another_instance, head_of, new_topic, with_stores

CHOOSING = [{"sharing": "fair"}, {"topic_order": "listed"}]
LATE_MS = 1_000_000_000_000.0  # an expiry has 13 digits
FAIR = "nonce-01"  # its acquires go by shares


def put(instance: Instance, *keys: str, expires_ms: int | None = None) -> None:
    """A batch with one record for each key, whose value is the key."""
    headers = () if expires_ms is None else ((EXPIRES_AT_HEADER, b"%013d" % expires_ms),)
    data = encode([NewRecord(1_000, key.encode(), key.encode(), headers) for key in keys])
    entry = ProduceEntry(topic="orders", partition=0, data=data, may_expire=expires_ms is not None)
    produce(instance, [entry], Acks.QUORUM).all_ok()


def commit(instance: Instance, *entries: ProduceEntry, accepts: object = ()) -> None:
    part = TransactionPart(
        producer=begin(instance),
        number=instance.clock.now_ms(),
        entries=list(entries),
        acks=Acks.QUORUM,
        nonce=Nonce(bytes(16)),
    )
    commit_transaction(instance, part, (), 0, accepts)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", CHOOSING)
def test_chosen_records_are_accepted_in_a_transaction_and_those_that_gave_way_stay(
    instance: Instance, config: dict[str, str]
) -> None:
    new_topic(instance)
    new_group(instance, **config)
    put(instance, *"nnnnab")
    held = take(instance, 3, nonce=FAIR)
    commit(instance, accepts=acceptances(held))
    left = [offset for start, end in state_of(instance).unfinished() for offset in range(start, end)]
    came = [offset for _, offset in offsets_in(take(instance))]
    assert sorted([*came, *(offset for _, offset in offsets_in(held))]) == [*range(6)]
    assert {*left} <= {*came}


@pytest.mark.parametrize("config", CHOOSING)
def test_groups_of_a_mirror_choose_as_those_of_its_source(config: dict[str, str]) -> None:
    stages = Stages()
    for _ in range(4):
        stages.source.append("n")
    stages.source.append("a")
    stages.run()
    new_group(stages.mirror, **config)
    first, rest = take(stages.mirror, 2, nonce=FAIR), take(stages.mirror)
    assert sorted(offsets_in(first) + offsets_in(rest)) == [(0, offset) for offset in range(5)]
    finish(stages.mirror, first)
    finish(stages.mirror, rest)
    assert state_of(stages.mirror).open == 0


def test_records_that_gave_way_are_available_at_once_and_no_worker_sleeps_while_they_wait(instance: Instance) -> None:
    waking = with_stores(instance, wake_ups=MemoryWakeUps())
    new_topic(waking)
    new_group(waking, sharing="fair")
    put(waking, *"nnnnab")
    take(waking, 3, nonce=FAIR)
    rest = take(waking, must_arm=True)
    assert (len(offsets_in(rest)), [*rest.watched]) == (3, [])
    idle = take(waking, must_arm=True)
    assert [each.is_armed for each in idle.watched] == [True]


def test_a_quota_pays_what_is_handed_out_and_not_what_was_read_for_tenants(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance, sharing="fair")
    for _ in range(8):
        put(instance, "n")
    wish = AcquireWish(records_max=1, bytes_max=1_000_000)
    found = acquire_within_quotas(instance, "arn:aws:iam::1:user/a", GROUP, wish)
    [lock] = locks_in(found)
    assert len(lock.batches) == 1
    assert not sum(found.passed_bytes.values())


def test_a_topic_over_its_quota_has_not_moved_with_the_others() -> None:
    source = stages_of("a").source
    new_topic(source.instance, "stays")
    new_group(source.instance, "orders", "stays")
    finish(source.instance, take(source.instance))
    move_topic(source.instance, "orders", source.subscription.name)
    put_quota(source.instance, "topic", "stays", {"fetch_bytes_per_s": 1_000_000})
    wish = AcquireWish(records_max=1, bytes_max=1_000_000)
    acquire_within_quotas(source.instance, "me", GROUP, wish)
    allow_fetch(source.instance, "me", ["stays"], 1_000_000).settle(source.instance, {"stays": 100_000_000})
    found = acquire_within_quotas(source.instance, "me", GROUP, wish)
    assert not found.partitions
    assert found.next_available_ms


def test_a_record_of_a_transaction_expires_as_any_other(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    new_group(instance)
    clock.time_ms = LATE_MS
    headers = ((EXPIRES_AT_HEADER, b"%013d" % (clock.time_ms + 5_000)),)
    data = encode([NewRecord(1_000, None, value, headers if value == b"old" else ()) for value in (b"old", b"new")])
    commit(instance, ProduceEntry(topic="orders", partition=0, data=data, may_expire=True))
    clock.time_ms += 5_000
    assert values_in(take(instance)) == ["new"]
    assert state_of(instance).expired == 1


def test_a_mirrored_record_expires_at_the_mirror_at_the_time_of_its_sender() -> None:
    clock = SteppedClock()
    clock.time_ms = LATE_MS
    stages = Stages(clock=clock)
    put(stages.source.instance, "old", expires_ms=stages.clock.now_ms() + 3_600_000)
    put(stages.source.instance, "new")
    stages.run()
    new_group(stages.mirror)
    stages.clock.time_ms += 3_600_000
    assert values_in(take(stages.mirror)) == ["new"]


def test_a_schedule_appends_nothing_to_a_topic_that_moved_and_tells_where_it_is() -> None:
    stages = stages_of("a")
    source = stages.source.instance
    put_schedule(source)
    move_topic(source, "orders", stages.source.subscription.name)
    end = head_of(source, "orders").next_offset
    stages.clock.time_ms += 2 * SCHEDULE_AHEAD_MS + 60_000
    done = run_schedules(another_instance(source))
    assert (done.delivered, head_of(source, "orders").next_offset) == (0, end)
    assert "moved" in (find_schedule(source, "each").last.error or "")


def test_a_schedule_appends_nothing_to_a_mirror() -> None:
    stages = stages_of("a")
    put_schedule(stages.mirror)
    stages.clock.time_ms += 2 * SCHEDULE_AHEAD_MS + 60_000
    done = run_schedules(another_instance(stages.mirror))
    assert (done.delivered, head_of(stages.mirror, "orders").next_offset) == (0, 1)
    assert find_schedule(stages.mirror, "each").last.error
