from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import TopicId, TopicName
from penstock_core.log.topic import DeletedTopic, Topic, note_of
from penstock_core.storage.topic_item import deleted_topic_item, deleted_topic_key, parse_deleted_topic


@given(
    st.builds(
        DeletedTopic,
        topic_id=st.text().map(TopicId),
        name=st.text().map(TopicName),
        partitions=st.integers(1, 1_000),
        deleted_at_ms=st.integers(0, 2**48),
        is_being_created=st.booleans(),
        heads_removed_at_ms=st.none() | st.integers(0, 2**48),
    )
)
def test_note_survives_a_round_trip(note: DeletedTopic) -> None:
    item = deleted_topic_item(note)
    assert parse_deleted_topic(item) == note
    assert {"pk": item["pk"], "sk": item["sk"]} == deleted_topic_key(note.topic_id)


def test_deleted_topic_item_is_what_is_stored_today() -> None:
    topic = Topic(name=TopicName("orders"), topic_id=TopicId("00ff"), partitions=3, created_at_ms=5)
    note = note_of(topic, 9)
    item = deleted_topic_item(note)
    assert item == {
        "pk": {"S": "#deleted"},
        "sk": {"S": "00ff"},
        "name": {"S": "orders"},
        "partitions": {"N": "3"},
        "deleted_at_ms": {"N": "9"},
    }
    assert parse_deleted_topic(item) == note
    removed = replace(note, heads_removed_at_ms=11)
    assert deleted_topic_item(removed) == item | {"heads_removed_at_ms": {"N": "11"}}
    begun = note_of(topic, 9, is_being_created=True)
    assert deleted_topic_item(begun) == item | {"is_being_created": {"BOOL": True}}
    assert parse_deleted_topic(deleted_topic_item(begun)) == begun
