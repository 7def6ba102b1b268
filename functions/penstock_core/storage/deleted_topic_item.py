"""The item that notes a topic id without a name: a deleted topic, or one whose creation has not ended.

The retention job removes the heads and pages of the topic ids that it finds here.

```
topics table   pk "#deleted"   sk topic id
name                 S     the topic's name
partitions           N     how many heads there may be
deleted_at_ms        N     when the topic was deleted, or its creation began
is_being_created     BOOL  true; absent from a deleted topic
heads_removed_at_ms  N     when none of its heads was left; absent before
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.topic import DeletedTopic
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number


def deleted_topic_item(note: DeletedTopic) -> Item:
    """The whole item, for a PutItem."""
    item = {
        **deleted_topic_key(note.topic_id),
        "name": {"S": note.name},
        "partitions": number(note.partitions),
        "deleted_at_ms": number(note.deleted_at_ms),
    }
    if note.heads_removed_at_ms is not None:
        item["heads_removed_at_ms"] = number(note.heads_removed_at_ms)
    return item | {"is_being_created": {"BOOL": True}} if note.is_being_created else item


def deleted_topic_key(topic_id: TopicId) -> Item:
    """The key of the topic id's note."""
    return {"pk": {"S": keys.DELETED}, "sk": {"S": topic_id}}


def parse_deleted_topic(item: Mapping[str, Any]) -> DeletedTopic:
    """The inverse of `deleted_topic_item`."""
    check_item("deleted_topic", item)
    return DeletedTopic(
        topic_id=TopicId(item["sk"]["S"]),
        name=TopicName(item["name"]["S"]),
        partitions=int(item["partitions"]["N"]),
        deleted_at_ms=int(item["deleted_at_ms"]["N"]),
        is_being_created="is_being_created" in item,
        heads_removed_at_ms=int(item["heads_removed_at_ms"]["N"]) if "heads_removed_at_ms" in item else None,
    )
