"""Topics created, altered, truncated and deleted, seen by an instance that remembers them as they were."""

from typing import Any

import pytest

from penstock_broker.alter_topic import alter_topic
from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.describe_topic import describe_topic, list_topics
from penstock_broker.directory import TTL_MS
from penstock_broker.produce import produce
from penstock_broker.truncate import truncate
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.quorum import Acks
from tests.broker.setting import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    new_topic,
    read_all,
    send,
    values_of,
)


@pytest.fixture
def stale(broker: Broker) -> Broker:
    """An instance that has written to orders-0 and remembers the topic."""
    new_topic(broker)
    instance = another_instance(broker)
    send(instance, "orders", "old", "old too")
    return instance


def test_append_is_refused_when_another_instance_deleted_the_topic(broker: Broker, stale: Broker) -> None:
    delete_topic(broker, "orders")
    with pytest.raises(PenstockError) as caught:
        send(stale, "orders", "lost")
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.UNKNOWN_TOPIC, False)


def test_fetch_is_refused_when_another_instance_deleted_the_topic(broker: Broker, stale: Broker) -> None:
    delete_topic(broker, "orders")
    with pytest.raises(PenstockError) as caught:
        ask(stale, "orders")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def test_append_goes_to_the_new_topic_when_it_was_created_again(broker: Broker, stale: Broker) -> None:
    delete_topic(broker, "orders")
    new_topic(broker)
    assert send(stale, "orders", "new") == Appended(base_offset=0, next_offset=1)
    assert read_all(broker, "orders") == [(0, "new")]


def test_fetch_reads_the_new_topic_when_it_was_created_again(broker: Broker, stale: Broker) -> None:
    delete_topic(broker, "orders")
    new_topic(broker)
    send(broker, "orders", "new")
    assert values_of(ask(stale, "orders")) == [(0, "new")]


def test_append_is_refused_when_the_new_topic_has_fewer_partitions(broker: Broker) -> None:
    new_topic(broker, partitions=3)
    stale = another_instance(broker)
    send(stale, "orders", "old", partition=2)
    delete_topic(broker, "orders")
    new_topic(broker, partitions=1)
    results = produce(stale, [entry("orders", number, batch("x")) for number in (2, 0)], Acks.QUORUM)
    assert isinstance(results[0], PenstockError)
    assert results[0].code is ErrorCode.UNKNOWN_PARTITION
    assert results[1] == Appended(base_offset=0, next_offset=1)


def test_partitions_added_are_seen_by_another_instance_when_it_is_asked_for_them(broker: Broker, stale: Broker) -> None:
    alter_topic(broker, "orders", 4, {})
    assert send(stale, "orders", "x", partition=3) == Appended(base_offset=0, next_offset=1)
    assert values_of(ask(stale, "orders", partition=3)) == [(0, "x")]


def test_config_is_seen_by_another_instance_when_what_it_remembers_is_too_old(
    broker: Broker, stale: Broker, clock: SteppedClock
) -> None:
    alter_topic(broker, "orders", None, {"max_batch_bytes": 1_024})
    large = entry("orders", 0, batch("x" * 2_000))
    clock.sleep_ms(TTL_MS - 1)
    assert isinstance(produce(stale, [large], Acks.QUORUM)[0], Appended), "within 10 s the old setting may hold"
    clock.sleep_ms(1)
    [refused] = produce(stale, [large], Acks.QUORUM)
    assert isinstance(refused, PenstockError)
    assert refused.code is ErrorCode.RECORD_TOO_LARGE
    [at_once] = produce(broker, [large], Acks.QUORUM)
    assert isinstance(at_once, PenstockError), "the instance that altered it knows at once"


def test_alter_topic_keeps_records_and_what_is_not_named(broker: Broker) -> None:
    new_topic(broker, partitions=2, max_batch_bytes=4_096)
    send(broker, "orders", "x", partition=1)
    altered = alter_topic(broker, "orders", 5, {})
    assert (altered.partitions, altered.config.max_batch_bytes) == (5, 4_096)
    assert alter_topic(broker, "orders", None, {"max_batch_bytes": None}).partitions == 5
    assert read_all(broker, "orders", 1) == [(0, "x")]
    assert describe_topic(broker, "orders")[0] == broker.topics.get(altered.name)


@pytest.mark.parametrize("partitions", [0, 1, 1_001])
def test_alter_topic_refuses_fewer_partitions_and_too_many(broker: Broker, partitions: int) -> None:
    new_topic(broker, partitions=2)
    with pytest.raises(PenstockError, match=f"{partitions} partitions") as caught:
        alter_topic(broker, "orders", partitions, {})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert describe_topic(broker, "orders")[0].partitions == 2


def test_alter_topic_is_refused_when_another_instance_was_faster(broker: Broker, stale: Broker) -> None:
    def replace_late(original: Any, *arguments: Any) -> None:
        alter_topic(broker, "orders", 3, {})
        original(*arguments)

    slow = another_instance(broker, topics=Intercepted(broker.topics, replace=replace_late))
    with pytest.raises(PenstockError) as caught:
        alter_topic(slow, "orders", 5, {})
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert describe_topic(broker, "orders")[0].partitions == 3


def test_delete_topic_is_refused_when_partitions_are_added_meanwhile(broker: Broker, stale: Broker) -> None:
    """Else the heads of the new partitions would stay, and whoever knows them could go on appending."""

    def delete_late(original: Any, *arguments: Any) -> None:
        alter_topic(broker, "orders", 3, {})
        send(stale, "orders", "x", partition=2)
        original(*arguments)

    slow = another_instance(broker, topics=Intercepted(broker.topics, delete=delete_late))
    with pytest.raises(PenstockError) as caught:
        delete_topic(slow, "orders")
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    delete_topic(another_instance(broker), "orders")
    for partition in range(3):
        with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
            send(stale, "orders", "y", partition=partition)


def test_delete_topic_leaves_other_topics_alone_and_names_its_data(broker: Broker) -> None:
    new_topic(broker, "kept")
    send(broker, "kept", "x")
    new_topic(broker)
    deleted_id = broker.directory.find("orders").topic_id
    delete_topic(broker, "orders")
    assert [topic.name for topic in list_topics(broker, 10, "")[0]] == ["kept"]
    assert read_all(broker, "kept") == [(0, "x")]
    assert [note.topic_id for note in broker.topics.deleted()] == [deleted_id]
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
        delete_topic(broker, "orders")


def test_create_topic_is_refused_when_the_name_is_taken(broker: Broker) -> None:
    new_topic(broker)
    send(broker, "orders", "x")
    with pytest.raises(PenstockError, match="'orders' exists") as caught:
        create_topic(another_instance(broker), "orders", 5, {})
    assert caught.value.code is ErrorCode.TOPIC_EXISTS
    assert read_all(broker, "orders") == [(0, "x")]


def test_create_topic_leaves_nothing_visible_when_a_head_cannot_be_made(broker: Broker) -> None:
    def create_head(original: Any, key: PartitionKey) -> None:
        if key.partition == 1:
            raise UNAVAILABLE
        original(key)

    faulty = another_instance(broker, log=Intercepted(broker.log, create_head=create_head))
    with pytest.raises(PenstockError, match="STORAGE_UNAVAILABLE"):
        create_topic(faulty, "orders", 3, {})
    assert list_topics(broker, 10, "") == ([], None)
    new_topic(broker, partitions=3)
    assert send(broker, "orders", "x", partition=1).base_offset == 0


def test_truncate_hides_what_lies_below_for_every_reader(broker: Broker, stale: Broker) -> None:
    for number in range(40):
        send(broker, "orders", str(number))
    [head] = truncate(broker, "orders", {0: 21})
    assert isinstance(head, Head)
    assert (head.log_start_offset, head.high_watermark) == (21, 42)
    for instance in (broker, stale):
        with pytest.raises(PenstockError, match="OFFSET_OUT_OF_RANGE"):
            ask(instance, "orders", 20)
        assert read_all(instance, "orders", offset=21) == [(number, str(number - 2)) for number in range(21, 42)]
    assert send(broker, "orders", "next").base_offset == 42


def test_truncate_answers_each_partition_when_some_are_bad(broker: Broker) -> None:
    new_topic(broker, partitions=3)
    for partition in range(3):
        send(broker, "orders", "a", "b", "c", partition=partition)
    truncate(broker, "orders", {2: 2})
    results = truncate(broker, "orders", {1: 3, 7: 0, 0: 4, 2: 1})
    shown = [result.log_start_offset if isinstance(result, Head) else result.code.name for result in results]
    assert shown == [3, "UNKNOWN_PARTITION", "OFFSET_OUT_OF_RANGE", 2]
    key = PartitionKey(broker.directory.find("orders").topic_id, Partition(0))
    assert broker.log.heads([key])[key].log_start_offset == 0


def test_list_topics_pages_by_name(broker: Broker) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in reversed(names):
        new_topic(broker, name)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        topics, after = list_topics(broker, 3, after)
        found += [topic.name for topic in topics]
    assert found == names
    assert list_topics(broker, 7, "")[1] is None
    assert list_topics(broker, 6, "")[1] == "t05"
