"""JobCursors in the topics table."""

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_core.items import cursor_item, cursor_key


class DynamoDbJobCursors:
    """JobCursors."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get(self, job: str) -> str | None:
        answer = self._client.call(
            "get_item", is_repeatable=True, TableName=self._table, Key=cursor_key(job), ConsistentRead=True
        )
        return str(answer["Item"]["cursor"]["S"]) if "Item" in answer else None

    def put(self, job: str, cursor: str) -> None:
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=cursor_item(job, cursor))

    def clear(self, job: str) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=cursor_key(job))
