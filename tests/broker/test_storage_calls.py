"""What a request costs in storage calls, counted."""

from collections import Counter

import pytest

from penstock_broker.broker import Broker
from penstock_broker.delete_topic import delete_topic
from penstock_broker.fetch import FetchEntry, fetch
from penstock_broker.list_offsets import OffsetSpec, list_offsets
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from tests.broker.setting import SteppedClock, ask, batch, counted_broker, entry, new_topic, patient_broker, send

PARTITIONS = 10


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def warm(broker: Broker, counts: Counter[str]) -> Broker:
    """A counted instance that remembers orders and bills, of 10 partitions each."""
    for name in ("orders", "bills"):
        new_topic(broker, name, PARTITIONS)
    instance = counted_broker(broker, counts)
    for name in ("orders", "bills"):
        instance.directory.find(name)
    instance.zone_directory.find()
    counts.clear()
    return instance


def _everywhere(value: str) -> list[ProduceEntry]:
    return [entry(name, number, batch(value)) for name in ("orders", "bills") for number in range(PARTITIONS)]


@pytest.mark.parametrize("acks", list(Acks))
def test_produce_costs_a_put_per_zone_and_an_append_per_partition_when_warm(
    warm: Broker, counts: Counter[str], acks: Acks
) -> None:
    produce(warm, _everywhere("x"), acks)
    assert counts == {"zone.put": 3, "log.append": 2 * PARTITIONS}


def test_produce_costs_no_more_when_an_entry_has_many_batches(warm: Broker, counts: Counter[str]) -> None:
    produce(warm, [entry("orders", 0, *[batch("a", "b")] * 50)], Acks.QUORUM)
    assert counts == {"zone.put": 3, "log.append": 1}


def test_produce_reads_each_topic_once_when_cold(broker: Broker, counts: Counter[str]) -> None:
    for name in ("orders", "bills"):
        new_topic(broker, name, PARTITIONS)
    produce(counted_broker(broker, counts), _everywhere("x"), Acks.QUORUM)
    assert counts == {"topics.get": 2, "zone_states.get": 1, "zone.put": 3, "log.append": 2 * PARTITIONS}


def test_produce_costs_one_roll_more_when_the_tail_is_full(warm: Broker, counts: Counter[str]) -> None:
    for number in range(3 * TAIL_ROLL_REFS):
        send(warm, "orders", str(number))
    assert counts["log.roll"] == 3
    assert counts["log.append"] == 3 * TAIL_ROLL_REFS


def test_produce_stores_nothing_when_everything_is_refused(warm: Broker, counts: Counter[str]) -> None:
    produce(warm, [entry("orders", 0, b"torn")], Acks.QUORUM)
    assert counts == {}


def test_produce_looks_an_unknown_partition_up_once(warm: Broker, counts: Counter[str]) -> None:
    produce(warm, [entry("orders", PARTITIONS, batch("x"))], Acks.QUORUM)
    assert counts == {"topics.get": 1}


def test_produce_looks_a_deleted_topic_up_once_for_all_its_partitions(
    broker: Broker, warm: Broker, counts: Counter[str]
) -> None:
    delete_topic(broker, "orders")
    new_topic(broker, "orders", PARTITIONS)
    produce(warm, _everywhere("x"), Acks.QUORUM)
    assert counts == {"topics.get": 1, "zone.put": 6, "log.append": 3 * PARTITIONS}


def _fetch_all(broker: Broker, offset: int = 0) -> None:
    entries = [
        FetchEntry(topic=name, partition=number, offset=offset, max_bytes=10_000)
        for name in ("orders", "bills")
        for number in range(PARTITIONS)
    ]
    fetch(broker, entries, max_bytes=1_000_000, min_bytes=1, wait_ms=0)


def test_fetch_at_the_tail_costs_one_read_of_heads_and_a_get_per_segment(warm: Broker, counts: Counter[str]) -> None:
    for value in "abc":
        produce(warm, _everywhere(value), Acks.QUORUM)
    counts.clear()
    _fetch_all(warm)
    assert counts == {"log.heads": 1, "zone.get": 3}


def test_fetch_costs_one_read_when_there_is_nothing_new(warm: Broker, counts: Counter[str]) -> None:
    produce(warm, _everywhere("a"), Acks.QUORUM)
    counts.clear()
    _fetch_all(warm, 1)
    assert counts == {"log.heads": 1}


def test_fetch_below_the_tail_costs_one_query_more_when_its_pages_fit_into_one(
    warm: Broker, counts: Counter[str]
) -> None:
    for number in range(8 * TAIL_ROLL_REFS + 3):
        send(warm, "orders", str(number))
    counts.clear()
    ask(warm, "orders", 5)
    assert counts == {"log.heads": 1, "log.pages": 1, "zone.get": 8 * TAIL_ROLL_REFS - 2}


def test_fetch_costs_one_get_per_range_when_a_segments_parts_lie_apart() -> None:
    broker = patient_broker(SteppedClock())
    counts: Counter[str] = Counter()
    new_topic(broker, partitions=3)
    instance = counted_broker(broker, counts)
    produce(instance, [entry("orders", number, batch("x" * 100_000)) for number in range(3)], Acks.QUORUM)
    counts.clear()
    entries = [FetchEntry(topic="orders", partition=number, offset=0, max_bytes=200_000) for number in (0, 2)]
    fetch(instance, entries, max_bytes=400_000, min_bytes=1, wait_ms=0)
    assert counts["zone.get"] == 2


def test_fetch_looks_a_deleted_topic_up_once_for_all_its_partitions(
    broker: Broker, warm: Broker, counts: Counter[str]
) -> None:
    delete_topic(broker, "orders")
    new_topic(broker, "orders", PARTITIONS)
    _fetch_all(warm)
    assert counts == {"topics.get": 1, "log.heads": 2}


def test_list_offsets_of_the_ends_costs_one_read_of_heads(warm: Broker, counts: Counter[str]) -> None:
    list_offsets(warm, "orders", OffsetSpec.LATEST, 0)
    assert counts == {"log.heads": 1}
    counts.clear()
    list_offsets(warm, "orders", OffsetSpec.LATEST, None)
    assert counts == {"topics.get": 1, "log.heads": 1}
