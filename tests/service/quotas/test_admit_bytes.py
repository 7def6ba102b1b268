"""Records for a topic that holds as much as its quota allows are refused, and others are not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import QUOTA_STORED_AGE_MS, QUOTA_STORED_REREAD_MS
from penstock_core.log.index import Head
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.quotas.admit import released_on_error
from penstock_service.records.produce_within_quotas import admit_whole, produce_within_quotas
from penstock_service.timers.promote_due import promote_due
from penstock_service.topics.alter_topic import truncate
from tests.service.timers.delays import delayed
from tests.support.refusals import refused
from tests.support.service import SteppedClock, another_instance, batch, entry, new_topic

ME = "arn:aws:iam::111122223333:role/me"
SIZE = len(batch("a"))


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    made = memory_instance(clock=clock)
    for name in ("shop.orders", "shop.other", "free"):
        new_topic(made, name, 2)
    return made


def send(instance: Instance, topic: str = "shop.orders", count: int = 1) -> None:
    for number in range(count):
        [result] = produce_within_quotas(instance, ME, [entry(topic, number % 2, batch("a"))], Acks.QUORUM)
        if isinstance(result, PenstockError):
            raise result


def limit(instance: Instance, batches: int, name: str = "shop.*") -> None:
    put_quota(instance, "topic", name, {"stored_bytes_max": batches * SIZE})


def test_topic_takes_records_up_to_its_quota_and_says_what_it_holds(instance: Instance) -> None:
    limit(instance, 3)
    send(instance, count=3)
    error = refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))
    assert f"holds {3 * SIZE} bytes" in error.message
    assert f"stored_bytes_max={3 * SIZE}: shorten its retention, truncate it" in error.message
    assert error.facts == {"quota": "stored_bytes_max", "limit": 3 * SIZE}


def test_bytes_of_all_partitions_that_were_there_before_count(instance: Instance) -> None:
    send(instance, count=4)
    limit(instance, 4)
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_each_topic_of_a_pattern_has_the_bytes_for_itself_and_the_longest_pattern_holds(instance: Instance) -> None:
    limit(instance, 1)
    limit(instance, 2, "shop.other")
    send(instance)
    send(instance, "shop.other", 2)
    send(instance, "free", 9)
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance, "shop.other"))


def test_full_topic_takes_no_neighbours_along(instance: Instance) -> None:
    limit(instance, 0, "shop.orders")
    entries = [entry("shop.orders", 0, batch("a")), entry("free", 0, batch("b"))]
    first, second = produce_within_quotas(instance, ME, entries, Acks.QUORUM)
    assert isinstance(first, PenstockError)
    assert not isinstance(second, PenstockError)


def test_transaction_with_a_full_topic_is_refused_whole_and_spends_nothing(instance: Instance) -> None:
    limit(instance, 0, "shop.orders")
    put_quota(instance, "topic", "free", {"produce_requests_per_s": 5})
    for _ in range(20):
        entries = [entry("free", 0, batch("b")), entry("shop.orders", 0, batch("a"))]
        refused(ErrorCode.QUOTA_EXCEEDED, partial(admit_whole, instance, ME, entries))
    send(instance, "free")


def test_records_over_a_rate_take_no_room(instance: Instance, clock: SteppedClock) -> None:
    """26 batches were stored and 74 throttled, and then the topic counted as full."""
    put_quota(instance, "topic", "shop.orders", {"stored_bytes_max": 30 * SIZE, "produce_requests_per_s": 5})
    seen: Counter[str] = Counter()
    for _ in range(100):
        try:
            send(instance)
        except PenstockError as error:
            seen[error.code.name] += 1
        else:
            seen["stored"] += 1
        clock.time_ms += 20
    assert set(seen) == {"stored", "THROTTLED"}
    assert 5 <= seen["stored"] < 30
    put_quota(instance, "topic", "shop.orders", {"stored_bytes_max": 30 * SIZE})
    instance.quota_cache.forget()
    send(instance, count=30 - seen["stored"])
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_records_for_a_full_topic_spend_nothing_of_its_rate(instance: Instance) -> None:
    put_quota(instance, "topic", "shop.orders", {"stored_bytes_max": 0, "produce_requests_per_s": 5})
    for _ in range(50):
        refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_transaction_with_a_full_topic_takes_no_room_in_another(instance: Instance) -> None:
    limit(instance, 2, "free")
    limit(instance, 0, "shop.orders")
    entries = [entry("free", 0, batch("b")), entry("shop.orders", 0, batch("a"))]
    for _ in range(50):
        refused(ErrorCode.QUOTA_EXCEEDED, partial(admit_whole, instance, ME, entries))
    send(instance, "free", 2)


def test_transaction_that_stores_nothing_takes_no_room(instance: Instance) -> None:
    limit(instance, 2)
    for _ in range(3):
        reserved = admit_whole(instance, ME, [entry("shop.orders", 0, batch("a"))])
        with pytest.raises(ValueError, match="no commit"), released_on_error(instance, reserved):
            raise ValueError("no commit")
    send(instance, count=2)


def test_append_that_fails_takes_no_room(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(instance, 2)
    entries = [entry("shop.orders", 0, b"no batch"), entry("free", 0, batch("b"))]
    for _ in range(20):
        first, second = produce_within_quotas(instance, ME, entries, Acks.QUORUM)
        assert isinstance(first, PenstockError)
        assert not isinstance(second, PenstockError)
    for zone in instance.stores.zones:
        monkeypatch.setattr(zone, "put", lambda *_: _away())
    for _ in range(2):
        with pytest.raises(PenstockError) as caught:
            send(instance)
        assert caught.value.code is not ErrorCode.QUOTA_EXCEEDED
    monkeypatch.undo()
    send(instance, count=2)
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_bytes_that_are_released_after_the_heads_were_read_again_are_not_given_back_twice(instance: Instance) -> None:
    limit(instance, 2)
    send(instance)
    topic = instance.topic_cache.get("shop.orders")
    [reserved] = admit_whole(instance, ME, [entry("shop.orders", 0, batch("a"))])
    instance.stored_bytes.note(topic.topic_id, SIZE, Moment.now(instance.clock))
    instance.stored_bytes.release(reserved, reserved.size)
    assert instance.stored_bytes.known(topic.topic_id) == (SIZE, 0)


def test_full_topic_reads_its_heads_once_a_second_before_it_refuses(
    instance: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(instance, 2)
    send(instance, count=2)
    truncate(instance, "shop.orders", {0: 1})
    clock.time_ms += QUOTA_STORED_REREAD_MS
    send(instance)
    reads: list[object] = []
    heads = instance.stores.log.heads

    def counted(keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        reads.append(keys)
        return heads(keys)

    monkeypatch.setattr(instance.stores.log, "heads", counted)
    for _ in range(10):
        refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))
        clock.time_ms += QUOTA_STORED_REREAD_MS // 5
    assert len(reads) == 1
    monkeypatch.setattr(instance.stores.log, "heads", lambda _: _away())
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_records_that_wait_are_bounded_when_they_come_and_not_before(instance: Instance, clock: SteppedClock) -> None:
    limit(instance, 1)
    for number in range(3):
        due = delayed("shop.orders", clock.now_ms() + 3_600_000, "a", number=number)
        [result] = produce_within_quotas(instance, ME, [due], Acks.QUORUM)
        assert not isinstance(result, PenstockError), "docs/how-to/quotas.md says so"
        clock.time_ms += QUOTA_STORED_AGE_MS
    clock.time_ms += 3_600_000
    promote_due(instance, budget_ms=1_000)
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_room_is_seen_when_the_heads_are_read_again(instance: Instance, clock: SteppedClock) -> None:
    limit(instance, 2)
    send(instance, count=2)
    truncate(instance, "shop.orders", {0: 1})
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))
    clock.time_ms += QUOTA_STORED_AGE_MS
    send(instance)
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def test_topic_exceeds_its_quota_by_what_other_instances_append_in_thirty_seconds(
    instance: Instance, clock: SteppedClock
) -> None:
    limit(instance, 3)
    other = another_instance(instance)
    send(instance)
    send(other)
    send(instance, count=2)
    send(other)
    for each in (instance, other):
        clock.time_ms += QUOTA_STORED_AGE_MS
        refused(ErrorCode.QUOTA_EXCEEDED, partial(send, each))
    topic = instance.topic_cache.get("shop.orders")
    heads = instance.stores.log.heads([PartitionKey(topic.topic_id, each) for each in topic.all_partitions()])
    assert sum(each.stored_bytes for each in heads.values()) == 5 * SIZE


def test_compacted_topic_has_no_bound(instance: Instance) -> None:
    new_topic(instance, "state", cleanup_policy="compact")
    limit(instance, 0, "*")
    send(instance, "state")


def test_heads_that_cannot_be_read_refuse_no_record(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(instance, 0)
    monkeypatch.setattr(instance.stores.log, "heads", lambda _: _away())
    send(instance)
    monkeypatch.undo()
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: send(instance))


def _away() -> None:
    raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")
