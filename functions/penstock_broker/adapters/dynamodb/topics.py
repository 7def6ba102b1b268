"""TopicStore on the topics table."""

from collections.abc import Sequence
from dataclasses import replace

from botocore.exceptions import ClientError

from penstock_broker.adapters.dynamodb.client import DynamoDbClient, condition_failed, error_code
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.items import (
    DeletedTopic,
    deleted_topic_item,
    deleted_topic_key,
    note_of,
    number,
    parse_deleted_topic,
    parse_topic,
    topic_item,
    topic_key,
)
from penstock_core.keys import DELETED, TOPIC
from penstock_core.topic import Topic


class DynamoDbTopicStore:
    """TopicStore."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def begin(self, note: DeletedTopic) -> None:
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=deleted_topic_item(note))

    def create(self, topic: Topic) -> None:
        # Repeatable: the topic id is ours alone, so a repeat after a lost answer is refused and finds our own item.
        try:
            self._client.call(
                "transact_write_items",
                is_repeatable=True,
                TransactItems=[
                    {
                        "Put": {
                            "TableName": self._table,
                            "Item": topic_item(topic),
                            "ConditionExpression": "attribute_not_exists(pk)",
                        }
                    },
                    {
                        "Delete": {
                            "TableName": self._table,
                            "Key": deleted_topic_key(topic.topic_id),
                            "ConditionExpression": "attribute_exists(is_being_created)",
                        }
                    },
                ],
            )
        except ClientError as error:
            if error_code(error) != "TransactionCanceledException":
                raise
            stored = self.get(topic.name)
            if stored is None:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE,
                    f"topic {topic.name!r} was not created: it took too long, or somebody else is at it; try again",
                ) from error
            if stored.topic_id != topic.topic_id:
                raise PenstockError(ErrorCode.TOPIC_EXISTS, f"topic {topic.name!r} exists already") from error

    def give_up(self, note: DeletedTopic) -> bool:
        try:
            self._client.call(
                "put_item",
                is_repeatable=True,
                TableName=self._table,
                Item=deleted_topic_item(replace(note, is_being_created=False)),
                ConditionExpression="attribute_exists(is_being_created)",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            return False
        return True

    def get(self, name: TopicName) -> Topic | None:
        answer = self._client.call(
            "get_item", is_repeatable=True, TableName=self._table, Key=topic_key(name), ConsistentRead=True
        )
        return parse_topic(answer["Item"]) if "Item" in answer else None

    def list(self) -> Sequence[Topic]:
        topics: list[Topic] = []
        for items in self._client.read_pages(
            "scan",
            TableName=self._table,
            FilterExpression="sk = :topic",
            ExpressionAttributeValues={":topic": {"S": TOPIC}},
        ):
            topics += map(parse_topic, items)
        return sorted(topics, key=lambda topic: topic.name)

    def replace(self, old: Topic, new: Topic) -> None:
        stored = topic_item(old)
        try:
            self._client.call(
                "put_item",
                is_repeatable=False,
                TableName=self._table,
                Item=topic_item(new),
                ConditionExpression="topic_id = :id AND #partitions = :partitions AND config = :config",
                ExpressionAttributeNames={"#partitions": "partitions"},
                ExpressionAttributeValues={
                    ":id": stored["topic_id"],
                    ":partitions": stored["partitions"],
                    ":config": stored["config"],
                },
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE, f"topic {old.name!r} was altered by somebody else: read it and try again"
            ) from error

    def delete(self, topic: Topic, now_ms: int) -> None:
        try:
            self._client.call(
                "transact_write_items",
                is_repeatable=False,
                TransactItems=[
                    {
                        "Delete": {
                            "TableName": self._table,
                            "Key": topic_key(topic.name),
                            # The heads to delete next are those of the partitions known here.
                            "ConditionExpression": "topic_id = :id AND #partitions = :partitions",
                            "ExpressionAttributeNames": {"#partitions": "partitions"},
                            "ExpressionAttributeValues": {
                                ":id": {"S": topic.topic_id},
                                ":partitions": number(topic.partitions),
                            },
                        }
                    },
                    {"Put": {"TableName": self._table, "Item": deleted_topic_item(note_of(topic, now_ms))}},
                ],
            )
        except ClientError as error:
            if error_code(error) != "TransactionCanceledException":
                raise
            stored = self.get(topic.name)
            if stored is None or stored.topic_id != topic.topic_id:
                raise PenstockError(
                    ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted by somebody else"
                ) from error
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE, f"topic {topic.name!r} is being altered by somebody else: try again"
            ) from error

    def deleted(self) -> Sequence[DeletedTopic]:
        found: list[DeletedTopic] = []
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :deleted",
            ExpressionAttributeValues={":deleted": {"S": DELETED}},
        ):
            found += map(parse_deleted_topic, items)
        return found

    def forget_deleted(self, topic_id: TopicId) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=deleted_topic_key(topic_id))
