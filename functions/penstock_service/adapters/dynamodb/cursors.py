"""JobCursors in the topics table."""

from penstock_core.storage.compaction_item import cursor_item, cursor_key, parse_cursor
from penstock_service.adapters.dynamodb.client import DynamoDbClient


class DynamoDbJobCursors:
    """JobCursors: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get(self, job: str) -> str | None:
        item = self._client.get(self._table, cursor_key(job))
        return None if item is None else parse_cursor(item)

    def put(self, job: str, cursor: str) -> None:
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=cursor_item(job, cursor))

    def clear(self, job: str) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=cursor_key(job))
