"""Topics created, altered, truncated and deleted, seen by an instance that remembers them as they were.

Partitions count as those of the principal that made them.

Topics of share groups with topic_order=listed have 100 partitions in all, whoever changes what.
"""

from collections import Counter
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId, TopicName
from penstock_core.limits import SHARE_LISTED_PARTITIONS_MAX, TOPICS_MAX
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic, note_of
from penstock_core.quotas.quota import ClaimKind
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.caches import TTL_MS
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import produce
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.describe_topic import describe_topic, list_topics
from tests.support.refusals import refused
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
    ask,
    batch,
    counted_instance,
    entry,
    new_topic,
    read_all,
    send,
    values_of,
)


@pytest.fixture
def stale(instance: Instance) -> Instance:
    """An instance that has written to orders-0 and remembers the topic."""
    new_topic(instance)
    other = another_instance(instance)
    send(other, "orders", "old", "old too")
    return other


def test_append_is_refused_when_another_instance_deleted_the_topic(instance: Instance, stale: Instance) -> None:
    delete_topic(instance, "orders")
    with pytest.raises(PenstockError) as caught:
        send(stale, "orders", "lost")
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.UNKNOWN_TOPIC, False)


def test_fetch_is_refused_when_another_instance_deleted_the_topic(instance: Instance, stale: Instance) -> None:
    delete_topic(instance, "orders")
    with pytest.raises(PenstockError) as caught:
        ask(stale, "orders")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def test_append_goes_to_the_new_topic_when_it_was_created_again(instance: Instance, stale: Instance) -> None:
    delete_topic(instance, "orders")
    new_topic(instance)
    assert send(stale, "orders", "new") == appended(0, 1)
    assert read_all(instance, "orders") == [(0, "new")]


def test_fetch_reads_the_new_topic_when_it_was_created_again(instance: Instance, stale: Instance) -> None:
    delete_topic(instance, "orders")
    new_topic(instance)
    send(instance, "orders", "new")
    assert values_of(ask(stale, "orders")) == [(0, "new")]


def test_append_is_refused_when_the_new_topic_has_fewer_partitions(instance: Instance) -> None:
    new_topic(instance, partitions=3)
    stale = another_instance(instance)
    send(stale, "orders", "old", partition=2)
    delete_topic(instance, "orders")
    new_topic(instance, partitions=1)
    results = produce(stale, [entry("orders", number, batch("x")) for number in (2, 0)], Acks.QUORUM)
    assert isinstance(results[0], PenstockError)
    assert results[0].code is ErrorCode.UNKNOWN_PARTITION
    assert results[1] == appended(0, 1)


def test_partitions_added_are_seen_by_another_instance_when_it_is_asked_for_them(
    instance: Instance, stale: Instance
) -> None:
    alter_topic(instance, "orders", 4, {})
    assert send(stale, "orders", "x", partition=3) == appended(0, 1)
    assert values_of(ask(stale, "orders", partition=3)) == [(0, "x")]


def test_partitions_added_are_born_with_a_push_waiter(instance: Instance) -> None:
    new_topic(instance, partitions=1)
    altered = alter_topic(instance, "orders", 3, {})
    heads = instance.stores.log.heads([PartitionKey(altered.topic_id, number) for number in altered.all_partitions()])
    assert [head.has_push_waiter for _, head in sorted(heads.items())] == [False, True, True]


def test_config_is_seen_by_another_instance_when_what_it_remembers_is_too_old(
    instance: Instance, stale: Instance, clock: SteppedClock
) -> None:
    alter_topic(instance, "orders", None, {"max_batch_bytes": 1_024})
    large = entry("orders", 0, batch("x" * 2_000))
    clock.sleep_ms(TTL_MS - 1)
    assert isinstance(produce(stale, [large], Acks.QUORUM)[0], AppendedRange), "within 10 s the old setting may hold"
    clock.sleep_ms(1)
    [refused] = produce(stale, [large], Acks.QUORUM)
    assert isinstance(refused, PenstockError)
    assert refused.code is ErrorCode.RECORD_TOO_LARGE
    [at_once] = produce(instance, [large], Acks.QUORUM)
    assert isinstance(at_once, PenstockError), "the instance that altered it knows at once"


def test_alter_topic_keeps_records_and_what_is_not_named(instance: Instance) -> None:
    new_topic(instance, partitions=2, max_batch_bytes=4_096)
    send(instance, "orders", "x", partition=1)
    altered = alter_topic(instance, "orders", 5, {})
    assert (altered.partitions, altered.config.max_batch_bytes) == (5, 4_096)
    assert alter_topic(instance, "orders", None, {"max_batch_bytes": None}).partitions == 5
    assert read_all(instance, "orders", 1) == [(0, "x")]
    assert describe_topic(instance.topic_cache, instance.stores.log, "orders")[0] == instance.stores.topics.get(
        altered.name
    )


@pytest.mark.parametrize("partitions", [0, 1_001])
def test_alter_topic_refuses_no_partitions_and_too_many(instance: Instance, partitions: int) -> None:
    new_topic(instance, partitions=2)
    with pytest.raises(PenstockError, match=f"{partitions} partitions") as caught:
        alter_topic(instance, "orders", partitions, {})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert describe_topic(instance.topic_cache, instance.stores.log, "orders")[0].partitions == 2


def test_alter_topic_is_refused_when_another_instance_was_faster(instance: Instance, stale: Instance) -> None:
    def replace_late(original: Any, *arguments: Any) -> None:
        alter_topic(instance, "orders", 3, {})
        original(*arguments)

    slow = another_instance(instance, topics=Intercepted(instance.stores.topics, replace=replace_late))
    with pytest.raises(PenstockError) as caught:
        alter_topic(slow, "orders", 5, {})
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert describe_topic(instance.topic_cache, instance.stores.log, "orders")[0].partitions == 3


def test_delete_topic_is_refused_when_partitions_are_added_meanwhile(instance: Instance, stale: Instance) -> None:
    """Otherwise the heads of the new partitions would stay, and instances that know them could go on appending."""

    def delete_late(original: Any, *arguments: Any) -> None:
        alter_topic(instance, "orders", 3, {})
        send(stale, "orders", "x", partition=2)
        original(*arguments)

    slow = another_instance(instance, topics=Intercepted(instance.stores.topics, delete=delete_late))
    with pytest.raises(PenstockError) as caught:
        delete_topic(slow, "orders")
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    delete_topic(another_instance(instance), "orders")
    for partition in range(3):
        with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
            send(stale, "orders", "y", partition=partition)


def test_delete_topic_leaves_other_topics_alone_and_names_its_data(instance: Instance) -> None:
    new_topic(instance, "kept")
    send(instance, "kept", "x")
    new_topic(instance)
    deleted_id = instance.topic_cache.get("orders").topic_id
    delete_topic(instance, "orders")
    assert [topic.name for topic in list_topics(instance.stores.topics, 10, "")[0]] == ["kept"]
    assert read_all(instance, "kept") == [(0, "x")]
    assert [note.topic_id for note in instance.stores.topics.deleted()] == [deleted_id]
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
        delete_topic(instance, "orders")


def test_create_topic_is_refused_when_the_name_is_taken(instance: Instance) -> None:
    new_topic(instance)
    send(instance, "orders", "x")
    with pytest.raises(PenstockError, match="'orders' exists") as caught:
        create_topic(another_instance(instance), "orders", 5, {})
    assert caught.value.code is ErrorCode.TOPIC_EXISTS
    assert read_all(instance, "orders") == [(0, "x")]


def test_create_topic_leaves_nothing_visible_when_a_head_cannot_be_made(instance: Instance) -> None:
    def create_head(original: Any, key: PartitionKey, has_push_waiter: bool) -> None:
        if key.partition == 1:
            raise UNAVAILABLE
        original(key, has_push_waiter)

    faulty = another_instance(instance, log=Intercepted(instance.stores.log, create_head=create_head))
    with pytest.raises(PenstockError, match="STORAGE_UNAVAILABLE"):
        create_topic(faulty, "orders", 3, {})
    assert list_topics(instance.stores.topics, 10, "") == ([], None)
    new_topic(instance, partitions=3)
    assert send(instance, "orders", "x", partition=1).base_offset == 0


def test_truncate_hides_what_lies_below_for_every_reader(instance: Instance, stale: Instance) -> None:
    for number in range(40):
        send(instance, "orders", str(number))
    [head] = truncate(instance, "orders", {0: 21})
    assert isinstance(head, Head)
    assert (head.log_start_offset, head.high_watermark) == (21, 42)
    for other in (instance, stale):
        with pytest.raises(PenstockError, match="OFFSET_OUT_OF_RANGE"):
            ask(other, "orders", 20)
        assert read_all(other, "orders", offset=21) == [(number, str(number - 2)) for number in range(21, 42)]
    assert send(instance, "orders", "next").base_offset == 42


def test_truncate_answers_each_partition_when_some_are_bad(instance: Instance) -> None:
    new_topic(instance, partitions=3)
    for partition in range(3):
        send(instance, "orders", "a", "b", "c", partition=partition)
    truncate(instance, "orders", {2: 2})
    results = truncate(instance, "orders", {1: 3, 7: 0, 0: 4, 2: 1})
    shown = [result.log_start_offset if isinstance(result, Head) else result.code.name for result in results]
    assert shown == [3, "UNKNOWN_PARTITION", "OFFSET_OUT_OF_RANGE", 2]
    key = PartitionKey(instance.topic_cache.get("orders").topic_id, Partition(0))
    assert instance.stores.log.heads([key])[key].log_start_offset == 0


def test_list_topics_pages_by_name(instance: Instance) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in reversed(names):
        new_topic(instance, name)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        topics, after = list_topics(instance.stores.topics, 3, after)
        found += [topic.name for topic in topics]
    assert found == names
    assert list_topics(instance.stores.topics, 7, "")[1] is None
    assert list_topics(instance.stores.topics, 6, "")[1] == "t05"


def test_creations_count_the_topics_once_in_ten_seconds(instance: Instance) -> None:
    counts: Counter[str] = Counter()
    other = counted_instance(instance, counts)
    for number in range(20):
        create_topic(other, f"t{number}", 1, {})
    assert (counts["topics.count"], counts["topics.list"]) == (1, 0)


def test_creation_is_refused_when_there_are_as_many_topics_as_the_limit_says(instance: Instance) -> None:
    topics = instance.stores.topics
    for number in range(TOPICS_MAX - 1):
        name = TopicName(f"t{number}")
        topic = Topic(name=name, topic_id=TopicId(f"{number:020x}"), partitions=1, created_at_ms=1)
        topics.begin(note_of(topic, 1, is_being_created=True))
        topics.create(topic)
    create_topic(instance, "last", 1, {})
    error = refused(ErrorCode.TOO_MANY_TOPICS, lambda: create_topic(instance, "one-more", 1, {}))
    assert error.facts == {"limit": TOPICS_MAX}
    assert len(topics.list()) == TOPICS_MAX
    assert topics.deleted() == []
    delete_topic(instance, "t0")
    create_topic(instance, "one-more", 1, {})


ADA, BOB = "arn:aws:iam::1:user/ada", "arn:aws:iam::1:user/bob"


@pytest.mark.parametrize("config", [{}, {"ordering_on_change": "wait"}])
def test_partitions_that_an_alteration_adds_count(config: dict[str, str]) -> None:
    instance = memory_instance(clock=SteppedClock())
    put_quota(instance, "principal", "*", {"partitions_max": 9, "topics_max": 1})
    create_topic(instance, "orders", 2, config, ADA)
    alter_topic(instance, "orders", 4, {}, ADA)
    with pytest.raises(PenstockError, match="partitions_max=9"):
        alter_topic(instance, "orders", 12, {}, ADA)
    assert instance.topic_cache.read_through("orders").writable_partitions == 4
    alter_topic(instance, "orders", 3, {}, BOB)
    alter_topic(instance, "orders", 5, {}, BOB)
    mine = instance.stores.quotas.claims(BOB)
    assert [each.kind for each in mine] == [ClaimKind.PARTITIONS]
    with pytest.raises(PenstockError, match="topics_max=1"):
        create_topic(instance, "more", 1, {}, ADA)
    create_topic(instance, "more", 1, {}, BOB)


def test_partitions_that_open_again_are_claimed_once() -> None:
    instance = memory_instance(clock=SteppedClock())
    create_topic(instance, "orders", 4, {}, ADA)
    alter_topic(instance, "orders", 2, {}, ADA)
    alter_topic(instance, "orders", 4, {}, ADA)
    [claim] = instance.stores.quotas.claims(ADA)
    assert claim.partitions == 4


GROUP, HIGH, LOW = "workers", "urgent", "bulk"


def refusal(instance: Instance, topics: list[str], **config: str) -> str:
    with pytest.raises(PenstockError) as caught:
        put_share_group(instance, GROUP, topics, config)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_too_many_partitions_are_refused_at_creation_at_alteration_and_later(instance: Instance) -> None:
    new_topic(instance, HIGH, SHARE_LISTED_PARTITIONS_MAX - 1)
    new_topic(instance, LOW, 2)
    told = refusal(instance, [HIGH, LOW], topic_order="listed")
    assert f"would have 101 partitions ({HIGH} has 99, {LOW} has 2): 100 at most in all" in told
    put_share_group(instance, GROUP, [HIGH], {"topic_order": "listed"})
    assert "101 partitions" in refusal(instance, [HIGH, LOW])
    alter_topic(instance, HIGH, 100, {})
    with pytest.raises(PenstockError) as caught:
        alter_topic(instance, HIGH, 101, {})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert f"share group {GROUP!r} has topic_order=listed" in caught.value.message
    assert "set topic_order=any" in caught.value.message
    put_share_group(instance, GROUP, None, {"topic_order": "any"})
    assert alter_topic(instance, HIGH, 101, {}).partitions == 101


def test_generation_that_opens_counts_too(instance: Instance) -> None:
    new_topic(instance, HIGH, 60, ordering_on_change="wait")
    put_share_group(instance, GROUP, [HIGH], {"topic_order": "listed"})
    with pytest.raises(PenstockError, match="would have 101 partitions"):
        alter_topic(instance, HIGH, 41, {})
    assert alter_topic(instance, HIGH, 40, {}).partitions_to_come == 100
