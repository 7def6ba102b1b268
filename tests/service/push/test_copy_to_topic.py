from typing import Any

import pytest

from penstock_core.ids import TopicName
from penstock_core.push.targets.target import HOPS_HEADER, TopicTarget
from penstock_core.records.codec import NewRecord, Record, decode
from penstock_core.records.partitioner import partition_for_key
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from tests.support.interleaving import catch_kill, killed_at
from tests.support.push_deliveries import Deliveries
from tests.support.service import Intercepted, another_instance, ask, new_topic, with_stores


def copying(partitions: int = 1, **settings: Any) -> Deliveries:
    return Deliveries(partitions=partitions, target=TopicTarget(topic=TopicName("copies")), settings=settings)


def copies(deliveries: Deliveries, partition: int = 0) -> list[Record]:
    return [*decode(ask(deliveries.instance, "copies", partition=partition).data)]


def test_records_are_copied_once_with_all_that_they_are() -> None:
    deliveries = copying(batch_records=10)
    new_topic(deliveries.instance, "copies")
    deliveries.append(*(NewRecord(each, b"k", None, [("a", b"1")]) for each in range(25)))
    deliveries.run()
    found = copies(deliveries)
    assert [(each.timestamp, each.key, each.value) for each in found] == [(each, b"k", None) for each in range(25)]
    assert {tuple(each.headers) for each in found} == {(("a", b"1"), (HOPS_HEADER, b"1"))}
    assert deliveries.batches == [], "no target outside was invoked"
    assert deliveries.counts()["records_pushed"] == 25


def test_partitions_keep_their_numbers() -> None:
    deliveries = copying(partitions=3)
    new_topic(deliveries.instance, "copies", 2)
    for partition in range(3):
        deliveries.append(str(partition), partition=partition)
    deliveries.run()
    assert sorted(each.value or b"" for each in copies(deliveries)) == [b"0", b"2"]
    assert [each.value for each in copies(deliveries, 1)] == [b"1"]


def test_answer_that_was_lost_copies_once() -> None:
    deliveries = copying()
    new_topic(deliveries.instance, "copies")
    deliveries.append("a")

    def move(do: Any, wanted: Any) -> Any:
        assert do(wanted)
        return do(wanted)

    transactions = Intercepted(deliveries.instance.stores.transactions, move=move)
    deliveries.instance = with_stores(deliveries.instance, transactions=transactions)
    deliveries.run()
    assert [each.value for each in copies(deliveries)] == [b"a"]


def test_records_in_a_circle_are_passed_over_and_counted() -> None:
    deliveries = copying()
    new_topic(deliveries.instance, "copies")
    looping = NewRecord(1, None, b"loop", [(HOPS_HEADER, b"3")])
    deliveries.append(looping, "a", looping)
    deliveries.run()
    deliveries.append(looping)
    deliveries.run()
    assert [each.value for each in copies(deliveries)] == [b"a"]
    counts = deliveries.counts()
    assert (counts["records_pushed"], counts["push_loops"]) == (1, 3)
    state = deliveries.state()
    assert state is not None
    assert (state.offset, state.trouble) == (4, None)


def test_target_that_is_missing_is_waited_for() -> None:
    deliveries = copying()
    new_topic(deliveries.instance, "copies")
    deliveries.append("a")
    deliveries.run()
    delete_topic(deliveries.instance, "copies")
    deliveries.append("b")
    deliveries.run(for_ms=60_000)
    state = deliveries.state()
    assert state is not None
    assert state.trouble is not None
    assert state.trouble.attempts == 0
    new_topic(deliveries.instance, "copies")
    deliveries.run()
    assert [each.value for each in copies(deliveries)] == [b"b"]


@pytest.mark.parametrize("call", [None, 4])
def test_copies_follow_their_keys_to_a_new_generation(call: int | None) -> None:
    """Also when the operator died in the middle: the copy opens the generation."""
    deliveries = copying(partitions=2, batch_records=10)
    new_topic(deliveries.instance, "copies", 1, ordering_on_change="wait")
    deliveries.append(NewRecord(1, b"k", b"before", ()))
    deliveries.run()
    altering = another_instance(deliveries.instance)
    with catch_kill():
        alter_topic(altering if call is None else killed_at(altering, call, is_applied=True), "copies", 3, {})
    deliveries.append(*(NewRecord(2, key, key, ()) for key in (b"k", b"l", b"m")))
    deliveries.run()
    assert [each.value for each in copies(deliveries)] == [b"before"]
    for key in (b"k", b"l", b"m"):
        assert key in [each.value for each in copies(deliveries, 1 + partition_for_key(key, 3))]
    assert deliveries.counts()["records_pushed"] == 4
