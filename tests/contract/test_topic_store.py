"""The contract of TopicStore, held by the adapters in memory and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.log.topic import DeletedTopic, Topic, TopicConfig, note_of
from tests.contract.conftest import Ports

ORDERS = Topic(name=TopicName("orders"), topic_id=TopicId("t1"), partitions=3, created_at_ms=5)


def create(ports: Ports, topic: Topic) -> None:
    ports.topics.begin(note_of(topic, 4, is_being_created=True))
    ports.topics.create(topic)


def test_create_makes_the_topic_visible(ports: Ports) -> None:
    assert ports.topics.get(ORDERS.name) is None
    create(ports, ORDERS)
    assert ports.topics.get(ORDERS.name) == ORDERS
    assert list(ports.topics.deleted()) == []
    ports.topics.create(ORDERS)  # again, as after a lost answer
    assert ports.topics.get(ORDERS.name) == ORDERS


def test_creation_that_was_given_up_is_refused(ports: Ports) -> None:
    note = note_of(ORDERS, 4, is_being_created=True)
    ports.topics.begin(note)
    assert list(ports.topics.deleted()) == [note]
    assert ports.topics.give_up(note)
    assert list(ports.topics.deleted()) == [note_of(ORDERS, 4)]
    assert not ports.topics.give_up(note)
    with pytest.raises(PenstockError) as caught:
        ports.topics.create(ORDERS)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.topics.get(ORDERS.name) is None


def test_creation_that_came_to_its_end_cannot_be_given_up(ports: Ports) -> None:
    create(ports, ORDERS)
    assert not ports.topics.give_up(note_of(ORDERS, 4, is_being_created=True))
    assert ports.topics.get(ORDERS.name) == ORDERS
    assert list(ports.topics.deleted()) == []


def test_create_is_refused_when_the_name_is_taken(ports: Ports) -> None:
    create(ports, ORDERS)
    with pytest.raises(PenstockError) as caught:
        create(ports, replace(ORDERS, topic_id=TopicId("t2")))
    assert caught.value.code is ErrorCode.TOPIC_EXISTS
    assert [note.topic_id for note in ports.topics.deleted()] == ["t2"]
    assert ports.topics.get(ORDERS.name) == ORDERS


def test_list_is_sorted_and_knows_topics_only(ports: Ports) -> None:
    for name in ("b", "a", "c"):
        create(ports, replace(ORDERS, name=TopicName(name), topic_id=TopicId(name)))
    ports.topics.delete(replace(ORDERS, name=TopicName("c"), topic_id=TopicId("c")), 7)
    assert [topic.name for topic in ports.topics.list()] == ["a", "b"]
    assert ports.topics.count() == 2
    pages = [ports.topics.page(*where, lambda name: name != "b") for where in (("", 1), ("0", 5), ("a", 5))]
    assert [([topic.name for topic in page], more) for page, more in pages] == [
        (["a"], False),
        (["a"], False),
        ([], False),
    ]
    page, has_more = ports.topics.page("", 1, lambda _: True)
    assert (page, has_more) == (ports.topics.list()[:1], True)


def test_replace_changes_the_topic(ports: Ports) -> None:
    create(ports, ORDERS)
    new = replace(ORDERS, partitions=6, config=TopicConfig(max_batch_bytes=4096))
    ports.topics.replace(ORDERS, new)
    assert ports.topics.get(ORDERS.name) == new
    ports.topics.replace(new, ORDERS)
    assert ports.topics.get(ORDERS.name) == ORDERS


def test_replace_is_refused_when_somebody_was_faster(ports: Ports) -> None:
    create(ports, ORDERS)
    theirs = replace(ORDERS, partitions=6)
    ports.topics.replace(ORDERS, theirs)
    for changed in ({"partitions": 4}, {"config": TopicConfig(max_batch_bytes=4096)}):
        with pytest.raises(PenstockError) as caught:
            ports.topics.replace(ORDERS, replace(ORDERS, **changed))
        assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.topics.get(ORDERS.name) == theirs


def test_replace_is_refused_when_the_retention_was_raised_or_the_raise_has_ended_meanwhile(ports: Ports) -> None:
    create(ports, ORDERS)
    noted = replace(ORDERS, retention_raise=RetentionRaise(noted_ms=3, since_ms=2, retention_ms=1))
    ports.topics.replace(ORDERS, noted)
    assert ports.topics.end_raise(noted)
    for seen, now in ((noted, ORDERS), (ORDERS, noted)):
        with pytest.raises(PenstockError) as caught:
            ports.topics.replace(seen, replace(seen, partitions=4))
        assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
        ports.topics.replace(now, noted)


def test_raise_ends_unless_a_newer_one_has_come_or_the_name_means_another_topic(ports: Ports) -> None:
    create(ports, ORDERS)
    first = replace(ORDERS, retention_raise=RetentionRaise(noted_ms=3, since_ms=2, retention_ms=1))
    newer = replace(first, retention_raise=RetentionRaise(noted_ms=4, since_ms=2, retention_ms=1))
    ports.topics.replace(ORDERS, newer)
    assert not ports.topics.end_raise(first)
    assert not ports.topics.end_raise(replace(newer, topic_id=TopicId("t2")))
    assert ports.topics.get(ORDERS.name) == newer
    assert ports.topics.end_raise(newer)
    assert ports.topics.get(ORDERS.name) == ORDERS
    assert not ports.topics.end_raise(newer)


def test_delete_frees_the_name(ports: Ports) -> None:
    create(ports, ORDERS)
    ports.topics.delete(ORDERS, 7)
    assert ports.topics.get(ORDERS.name) is None
    again = replace(ORDERS, topic_id=TopicId("t2"))
    create(ports, again)
    assert ports.topics.get(ORDERS.name) == again


def test_delete_is_refused_when_the_name_means_another_topic(ports: Ports) -> None:
    create(ports, ORDERS)
    with pytest.raises(PenstockError) as caught:
        ports.topics.delete(replace(ORDERS, topic_id=TopicId("t0")), 7)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    assert ports.topics.get(ORDERS.name) == ORDERS


def test_delete_is_refused_when_partitions_were_added_since(ports: Ports) -> None:
    create(ports, ORDERS)
    theirs = replace(ORDERS, partitions=6)
    ports.topics.replace(ORDERS, theirs)
    with pytest.raises(PenstockError) as caught:
        ports.topics.delete(ORDERS, 7)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.topics.get(ORDERS.name) == theirs
    ports.topics.delete(theirs, 8)
    assert ports.topics.get(ORDERS.name) is None


def test_delete_leaves_a_note_of_the_data_until_it_is_forgotten(ports: Ports) -> None:
    other = replace(ORDERS, name=TopicName("other"), topic_id=TopicId("t2"), partitions=1)
    for topic in (ORDERS, other):
        create(ports, topic)
    assert list(ports.topics.deleted()) == []
    ports.topics.delete(ORDERS, 7)
    ports.topics.delete(other, 8)
    notes = {note.topic_id: note for note in ports.topics.deleted()}
    assert notes == {
        "t1": DeletedTopic(topic_id=TopicId("t1"), name=ORDERS.name, partitions=3, deleted_at_ms=7),
        "t2": DeletedTopic(topic_id=TopicId("t2"), name=other.name, partitions=1, deleted_at_ms=8),
    }
    for _ in range(2):
        ports.topics.forget_deleted(TopicId("t1"))
        assert [note.topic_id for note in ports.topics.deleted()] == ["t2"]
