"""The contract of JobCursors, held by the adapters in memory and on DynamoDB."""

from penstock_core.ids import TopicId, TopicName
from penstock_core.log.topic import Topic, note_of
from tests.contract.conftest import Ports


def test_cursor_is_kept_for_each_job_until_it_is_cleared(ports: Ports) -> None:
    assert ports.cursors.get("sweep") is None
    ports.cursors.put("sweep", "1")
    ports.cursors.put("retention", "orders#7")
    ports.cursors.put("sweep", "2")
    assert (ports.cursors.get("sweep"), ports.cursors.get("retention")) == ("2", "orders#7")
    for _ in range(2):
        ports.cursors.clear("sweep")
        assert (ports.cursors.get("sweep"), ports.cursors.get("retention")) == (None, "orders#7")


def test_cursor_is_no_topic(ports: Ports) -> None:
    topic = Topic(name=TopicName("sweep"), topic_id=TopicId("t1"), partitions=1, created_at_ms=5)
    ports.topics.begin(note_of(topic, 5, is_being_created=True))
    ports.topics.create(topic)
    ports.cursors.put("sweep", "1")
    assert [topic.name for topic in ports.topics.list()] == ["sweep"]
    assert list(ports.topics.deleted()) == []
