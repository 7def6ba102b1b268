"""Function instances: what they share, what each of them remembers for itself, and how much of it.

The memory of proofs: one call of the authority for each proof, and no proof that outlives its time on any clock.

An instance counts the traffic of topics.
"""

from collections import Counter
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from penstock_core.direct.caller_proof import CallerProof, refused_proof
from penstock_core.direct.function_arn import FunctionsPlace, parse_functions_place
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupState
from penstock_core.groups.group_target import EMPTY_TARGET
from penstock_core.ids import GroupName, TopicId, TopicName
from penstock_core.limits import (
    INSTANCE_LOG_ENTRIES_MAX,
    INSTANCE_READS_BYTES_MAX,
    INSTANCE_READS_MS,
    INSTANCE_TARGETS_MAX,
    INSTANCE_TOPICS_MAX,
    INSTANCE_TRAFFIC_TOPICS_MAX,
    PROOF_AGE_MS_MAX,
    PROOF_AHEAD_MS_MAX,
    PROOFS_REMEMBERED_MAX,
)
from penstock_core.log.topic import Topic
from penstock_core.metrics.lag_memory import NO_TRAFFIC, OTHER, TopicTraffic
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance, RecentReads, Traffic
from penstock_service.instance.proven_callers import ProvenCallers
from penstock_service.instance.telemetry import Telemetry
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from tests.support.refusals import refused
from tests.support.service import (
    FrozenClock,
    SteppedClock,
    another_instance,
    ask,
    batch,
    counted_instance,
    entry,
    head_of,
    new_topic,
    read_all,
    send,
)

SHARED = {"stores", "clock", "entropy", "executor", "tuning"}


def _memory(instance: Instance) -> dict[str, object]:
    """What it remembers. None is no memory: `proven_callers` of a stage without direct calls."""
    found = {each.name: getattr(instance, each.name) for each in fields(Instance) if each.name not in SHARED}
    return {name: remembered for name, remembered in found.items() if remembered is not None}


def test_new_instance_shares_no_memory_with_the_instance_before() -> None:
    first = memory_instance()
    for second in (Instance.new(first.stores, first.runtime, first.tuning), another_instance(first)):
        assert _memory(first).keys() == _memory(second).keys() != set()
        for name, remembered in _memory(first).items():
            assert _memory(second)[name] is not remembered, name
            assert type(_memory(second)[name]) is type(remembered), name


def test_new_instance_shares_stores_runtime_and_tuning() -> None:
    first = memory_instance()
    second = Instance.new(first.stores, first.runtime, first.tuning)
    for name in SHARED:
        assert getattr(second, name) is getattr(first, name), name


class _AnyTopic:
    """A store that has every topic; `reads` counts."""

    def __init__(self) -> None:
        self.reads = 0

    def get(self, name: TopicName) -> Topic:
        self.reads += 1
        return Topic(name=name, topic_id=TopicId(name), partitions=1, created_at_ms=0)


def test_topic_cache_forgets_when_it_is_full() -> None:
    topics = _AnyTopic()
    cache = TopicCache(topics, SteppedClock())  # type: ignore[arg-type] # the one method that the cache uses
    for number in range(INSTANCE_TOPICS_MAX):
        cache.get(f"t{number}")
    cache.get("t0")
    assert topics.reads == INSTANCE_TOPICS_MAX
    cache.get("one.more")
    cache.get("t0")
    assert topics.reads == INSTANCE_TOPICS_MAX + 2


def test_group_cache_forgets_the_oldest_target_when_it_is_full() -> None:
    cache = memory_instance().group_cache
    groups = [
        GroupState(name=GroupName(f"g{number}"), epoch=1, target_id="t") for number in range(INSTANCE_TARGETS_MAX + 1)
    ]
    for group in groups:
        cache.remember(group, EMPTY_TARGET)
    assert cache.target_of(groups[0]) is None, "it is not in the store either"
    assert all(cache.target_of(group) is EMPTY_TARGET for group in groups[1:])


def test_telemetry_counts_without_logging_when_there_are_many_entries() -> None:
    telemetry = Telemetry()
    for number in range(INSTANCE_LOG_ENTRIES_MAX + 5):
        telemetry.log("repair_failed", number=number)
    counts, entries = telemetry.take()
    assert counts == {"repair_failed": INSTANCE_LOG_ENTRIES_MAX + 5}
    assert [facts["number"] for _, facts in entries] == list(range(INSTANCE_LOG_ENTRIES_MAX))
    telemetry.log("repair_failed", number=0)
    assert telemetry.take() == ({"repair_failed": 1}, [("repair_failed", {"number": 0})])


def test_next_fetch_of_an_instance_needs_no_get_for_a_moment() -> None:
    clock = SteppedClock()
    instance = memory_instance(clock=clock)
    topic = new_topic(instance)
    send(instance, topic, "a")
    counts: Counter[str] = Counter()
    reader = counted_instance(instance, counts)
    for _ in range(10):
        assert read_all(reader, topic) == [(0, "a")]
    assert counts["zone.get"] == 1
    send(instance, topic, "b")
    assert read_all(reader, topic) == [(0, "a"), (1, "b")]
    assert counts["zone.get"] == 2
    clock.time_ms += INSTANCE_READS_MS
    assert read_all(reader, topic) == [(0, "a"), (1, "b")]
    assert counts["zone.get"] == 4


def test_reads_that_an_instance_keeps_are_bounded_and_the_oldest_go() -> None:
    instance = memory_instance()
    topic = new_topic(instance)
    for number in range(3):
        send(instance, topic, str(number))
    refs = [*head_of(instance, topic).located_tail()]
    reads = RecentReads(instance.clock)
    for each in refs:
        reads.keep({each: memoryview(bytes(INSTANCE_READS_BYTES_MAX // 2))[:1]})
    assert [*reads.find(refs)] == refs[1:]
    reads.keep({refs[0]: memoryview(bytes(INSTANCE_READS_BYTES_MAX + 1))})
    assert not reads.find(refs)


PLACE = parse_functions_place("arn:aws:lambda:us-east-1:111122223333:function:penstock")
ADA = "arn:aws:iam::111122223333:user/ada"
AWAY = PenstockError(ErrorCode.IDENTITY_UNAVAILABLE, "no answer")


class Authority:
    """Tells one name for every proof, or fails."""

    def __init__(self) -> None:
        self.arn = ADA
        self.failure: PenstockError | None = None
        self.asked: list[tuple[str, str]] = []

    def arn_of(self, proof: CallerProof, stage: str) -> str:
        self.asked.append((proof.signature, stage))
        if self.failure is not None:
            raise self.failure
        return self.arn


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(SteppedClock())


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def callers(authority: Authority, clock: FrozenClock) -> ProvenCallers:
    return ProvenCallers(authority, clock, "penstock")


def proof_of(clock: FrozenClock, number: int = 0, age_ms: int = 0) -> CallerProof:
    time = datetime.fromtimestamp((clock.now_ms() - age_ms) // 1_000, UTC)
    return CallerProof(key="A" * 20, time=f"{time:%Y%m%dT%H%M%SZ}", token="", signature=f"{number:064x}")


def test_caller_is_asked_for_once_when_its_proof_comes_again(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    assert [callers.arn_of(proof, PLACE) for _ in range(3)] == [ADA] * 3
    assert authority.asked == [(proof.signature, PLACE.arn)]


@pytest.mark.parametrize("part", [{"signature": "f" * 64}, {"key": "B" * 20}, {"token": "t"}])
def test_other_proof_is_asked_for_when_one_is_known(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock, part: dict[str, str]
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    authority.failure = refused_proof("no")
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(replace(proof, **part), PLACE))


def test_known_proof_is_refused_when_it_is_too_old(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    clock.sleep_ms(PROOF_AGE_MS_MAX + 1_000)
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof, PLACE))
    assert len(authority.asked) == 1


def test_known_proof_is_refused_when_it_grew_old_in_a_freeze(callers: ProvenCallers, clock: FrozenClock) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    clock.freeze(PROOF_AGE_MS_MAX + 1_000)
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof, PLACE))


def test_known_proof_is_asked_for_again_when_the_wall_clock_was_set_back(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    later_ms = PROOF_AGE_MS_MAX + PROOF_AHEAD_MS_MAX + 1_000
    clock.sleep_ms(later_ms)
    clock.set_back_ms = later_ms
    authority.failure = refused_proof("expired")
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof, PLACE))


def test_old_proof_costs_no_call(callers: ProvenCallers, authority: Authority, clock: FrozenClock) -> None:
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof_of(clock, age_ms=PROOF_AGE_MS_MAX + 1_000), PLACE))
    assert authority.asked == []


def test_refusal_is_not_remembered(callers: ProvenCallers, authority: Authority, clock: FrozenClock) -> None:
    proof = proof_of(clock)
    authority.failure = AWAY
    error = refused(ErrorCode.IDENTITY_UNAVAILABLE, lambda: callers.arn_of(proof, PLACE))
    assert not error.maybe_applied
    authority.failure = None
    assert callers.arn_of(proof, PLACE) == ADA


def test_known_caller_goes_on_when_the_authority_is_away(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    authority.failure = AWAY
    assert callers.arn_of(proof, PLACE) == ADA


@pytest.mark.parametrize(
    "arn", ["arn:aws:iam::999999999999:user/ada", "arn:aws:sts::999999999999:assumed-role/r/s", "ada", ""]
)
def test_caller_of_another_account_is_refused(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock, arn: str
) -> None:
    authority.arn = arn
    error = refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof_of(clock), PLACE))
    assert "assume a role of that account" in error.message


def test_memory_forgets_the_oldest_proof_when_it_is_full(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    for number in range(PROOFS_REMEMBERED_MAX + 1):
        callers.arn_of(proof_of(clock, number), PLACE)
    assert len(authority.asked) == PROOFS_REMEMBERED_MAX + 1
    callers.arn_of(proof_of(clock, 1), PLACE)
    assert len(authority.asked) == PROOFS_REMEMBERED_MAX + 1
    callers.arn_of(proof_of(clock, 0), PLACE)
    assert len(authority.asked) == PROOFS_REMEMBERED_MAX + 2


def test_place_of_another_name_is_what_the_authority_hears(authority: Authority, clock: FrozenClock) -> None:
    other = FunctionsPlace(partition="aws", region="eu-west-1", account="111122223333", stage="penstock-dev")
    ProvenCallers(authority, clock, "penstock-dev").arn_of(proof_of(clock), other)
    assert authority.asked[0][1] == other.arn


@pytest.fixture
def instance(instance: Instance) -> Instance:
    instance.traffic.is_on = True
    return instance


def test_records_and_bytes_count_on_their_way_in_and_on_each_way_out(instance: Instance) -> None:
    new_topic(instance)
    data = batch("a", "b", "c") + batch("d")
    produce_or_schedule(instance, [entry("orders", 0, data)], Acks.QUORUM)
    ask(instance, "orders", 0)
    ask(instance, "orders", 3)
    size = len(data)
    assert instance.traffic.take() == {
        "orders": TopicTraffic(
            records_received=4, bytes_received=size, records_sent=5, bytes_sent=size + len(batch("d"))
        )
    }
    assert instance.traffic.take() == {}


def test_records_that_a_share_group_hands_out_count(instance: Instance) -> None:
    new_topic(instance)
    put_share_group(instance, "workers", ["orders"], {"start": "earliest"})
    produce_or_schedule(instance, [entry("orders", 0, batch("a", "b"))], Acks.QUORUM)
    instance.traffic.take()
    acquire(instance, "workers", AcquireWish(records_max=10, bytes_max=1_000_000))
    assert instance.traffic.take()["orders"].records_sent == 2


def test_errors_count_for_the_topic_and_those_of_unknown_topics_for_all_others(instance: Instance) -> None:
    new_topic(instance)
    produce_or_schedule(instance, [entry("orders", 0, b"torn"), entry("unknown", 0, batch("a"))], Acks.QUORUM)
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(instance, "orders", 9))
    assert instance.traffic.take() == {
        "orders": TopicTraffic(requests_failed=2),
        OTHER: TopicTraffic(requests_failed=1),
    }


def test_nothing_is_counted_where_the_stage_has_no_metrics(instance: Instance) -> None:
    instance.traffic.is_on = False
    new_topic(instance)
    produce_or_schedule(instance, [entry("orders", 0, batch("a"))], Acks.QUORUM)
    assert instance.traffic.take() == {}


def test_topics_beyond_the_bound_count_together() -> None:
    traffic = Traffic(is_on=True)
    for number in range(INSTANCE_TRAFFIC_TOPICS_MAX + 5):
        traffic.add(f"topic-{number}", NO_TRAFFIC.plus(TopicTraffic(records_sent=1)))
    taken = traffic.take()
    assert len(taken) == INSTANCE_TRAFFIC_TOPICS_MAX + 1
    assert taken[OTHER].records_sent == 5
