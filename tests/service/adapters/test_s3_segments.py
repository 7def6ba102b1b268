"""S3SegmentStore against answers that only AWS gives.

The cost of requests in storage calls, counted.
"""

from collections import Counter
from typing import Any

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import new_segment_id
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.s3.segments import S3SegmentStore
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.list_offsets import OffsetSpec, list_offsets
from tests.support.refusals import refused
from tests.support.service import SteppedClock, ask, batch, counted_instance, entry, new_topic, patient_instance, send

SEGMENT = new_segment_id(1_700_000_000_000, b"0123456789")


class Answers:
    """A client of S3 whose put_object gives these answers in turn, and keeps the conditions that it was sent."""

    def __init__(self, *codes: str | None) -> None:
        self._codes = list(codes)
        self.conditions: list[str | None] = []

    def put_object(self, **arguments: Any) -> dict[str, Any]:
        self.conditions.append(arguments.get("IfNoneMatch"))
        code = self._codes.pop(0)
        if code is not None:
            raise AnsweredError(code)
        return {}


def test_put_is_made_again_without_its_condition_when_an_earlier_try_is_under_way() -> None:
    client = Answers("ConditionalRequestConflict", None)
    S3SegmentStore(lambda: client, "bucket", "a").put(SEGMENT, b"x", 1)
    assert client.conditions == ["*", None]


def test_put_is_no_error_when_an_earlier_try_has_left_the_object() -> None:
    client = Answers("PreconditionFailed")
    S3SegmentStore(lambda: client, "bucket", "a").put(SEGMENT, b"x", 1)
    assert client.conditions == ["*"]


@pytest.mark.parametrize("codes", [("SlowDown",), ("ConditionalRequestConflict", "InternalError")])
def test_put_fails_when_s3_refuses_for_another_reason(codes: tuple[str, ...]) -> None:
    client = Answers(*codes)
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: S3SegmentStore(lambda: client, "bucket", "a").put(SEGMENT, b"x", 1))
    assert len(client.conditions) == len(codes)


PARTITIONS = 10


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def warm(instance: Instance, counts: Counter[str]) -> Instance:
    """A counted instance that remembers orders and bills, of 10 partitions each."""
    for name in ("orders", "bills"):
        new_topic(instance, name, PARTITIONS)
    other = counted_instance(instance, counts)
    for name in ("orders", "bills"):
        other.topic_cache.get(name)
    other.zone_cache.get()
    counts.clear()
    return other


def _everywhere(value: str) -> list[ProduceEntry]:
    return [entry(name, number, batch(value)) for name in ("orders", "bills") for number in range(PARTITIONS)]


@pytest.mark.parametrize("acks", list(Acks))
def test_produce_costs_a_put_per_zone_and_an_append_per_partition_when_warm(
    warm: Instance, counts: Counter[str], acks: Acks
) -> None:
    produce(warm, _everywhere("x"), acks)
    assert counts == {"zone.put": 3, "log.append": 2 * PARTITIONS}


def test_produce_costs_no_more_when_an_entry_has_many_batches(warm: Instance, counts: Counter[str]) -> None:
    produce(warm, [entry("orders", 0, *[batch("a", "b")] * 50)], Acks.QUORUM)
    assert counts == {"zone.put": 3, "log.append": 1}


def test_produce_reads_each_topic_once_when_cold(instance: Instance, counts: Counter[str]) -> None:
    for name in ("orders", "bills"):
        new_topic(instance, name, PARTITIONS)
    produce(counted_instance(instance, counts), _everywhere("x"), Acks.QUORUM)
    assert counts == {"topics.get": 2, "zone_states.get": 1, "zone.put": 3, "log.append": 2 * PARTITIONS}


def test_produce_costs_a_put_and_an_update_more_when_the_tail_is_full(warm: Instance, counts: Counter[str]) -> None:
    for number in range(3 * TAIL_ROLL_REFS):
        send(warm, "orders", str(number))
    assert counts == {
        "zone.put": 3 * 3 * TAIL_ROLL_REFS,
        "log.append": 3 * TAIL_ROLL_REFS,
        "log.put_page": 3,
        "log.shorten_tail": 3,
    }


def test_produce_stores_nothing_when_everything_is_refused(warm: Instance, counts: Counter[str]) -> None:
    produce(warm, [entry("orders", 0, b"torn")], Acks.QUORUM)
    assert counts == {}


def test_produce_looks_an_unknown_partition_up_once(warm: Instance, counts: Counter[str]) -> None:
    produce(warm, [entry("orders", PARTITIONS, batch("x"))], Acks.QUORUM)
    assert counts == {"topics.get": 1}


def test_produce_looks_a_deleted_topic_up_once_for_all_its_partitions(
    instance: Instance, warm: Instance, counts: Counter[str]
) -> None:
    delete_topic(instance, "orders")
    new_topic(instance, "orders", PARTITIONS)
    produce(warm, _everywhere("x"), Acks.QUORUM)
    assert counts == {"topics.get": 1, "zone.put": 6, "log.append": 3 * PARTITIONS}


def _fetch_all(instance: Instance, offset: int = 0) -> None:
    entries = [
        FetchEntry(topic=name, partition=number, offset=offset, max_bytes=10_000)
        for name in ("orders", "bills")
        for number in range(PARTITIONS)
    ]
    fetch(instance, entries, max_bytes=1_000_000, min_bytes=1, wait_ms=0)


def test_fetch_at_the_tail_costs_one_read_of_heads_and_a_get_per_segment(warm: Instance, counts: Counter[str]) -> None:
    for value in "abc":
        produce(warm, _everywhere(value), Acks.QUORUM)
    counts.clear()
    _fetch_all(warm)
    assert counts == {"log.heads": 1, "zone.get": 3}


def test_fetch_costs_one_read_when_there_is_nothing_new(warm: Instance, counts: Counter[str]) -> None:
    produce(warm, _everywhere("a"), Acks.QUORUM)
    counts.clear()
    _fetch_all(warm, 1)
    assert counts == {"log.heads": 1}


def test_fetch_below_the_tail_costs_one_query_more_when_its_pages_fit_into_one(
    warm: Instance, counts: Counter[str]
) -> None:
    for number in range(8 * TAIL_ROLL_REFS + 3):
        send(warm, "orders", str(number))
    counts.clear()
    ask(warm, "orders", 5)
    assert counts == {"log.heads": 1, "log.pages": 1, "zone.get": 8 * TAIL_ROLL_REFS - 2}


def test_fetch_costs_one_get_per_range_when_a_segments_parts_lie_apart() -> None:
    instance = patient_instance(SteppedClock())
    counts: Counter[str] = Counter()
    new_topic(instance, partitions=3)
    other = counted_instance(instance, counts)
    produce(other, [entry("orders", number, batch("x" * 100_000)) for number in range(3)], Acks.QUORUM)
    counts.clear()
    entries = [FetchEntry(topic="orders", partition=number, offset=0, max_bytes=200_000) for number in (0, 2)]
    fetch(other, entries, max_bytes=400_000, min_bytes=1, wait_ms=0)
    assert counts["zone.get"] == 2


def test_fetch_looks_a_deleted_topic_up_once_for_all_its_partitions(
    instance: Instance, warm: Instance, counts: Counter[str]
) -> None:
    delete_topic(instance, "orders")
    new_topic(instance, "orders", PARTITIONS)
    _fetch_all(warm)
    assert counts == {"topics.get": 1, "log.heads": 2}


def test_list_offsets_of_the_ends_costs_one_read_of_heads(warm: Instance, counts: Counter[str]) -> None:
    list_offsets(warm, "orders", OffsetSpec.LATEST, 0)
    assert counts == {"log.heads": 1}
    counts.clear()
    list_offsets(warm, "orders", OffsetSpec.LATEST, None)
    assert counts == {"topics.get": 1, "log.heads": 1}
