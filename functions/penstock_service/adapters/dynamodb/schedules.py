"""ScheduleStore on the groups table."""

from collections.abc import Sequence
from typing import Any

from penstock_core.groups.group import concurrent_update
from penstock_core.ids import ScheduleName
from penstock_core.schedules.schedule import Schedule, ScheduleRun
from penstock_core.storage.item import number
from penstock_core.storage.keys import SCHEDULES
from penstock_core.storage.schedule_item import (
    parse_schedule,
    schedule_delete,
    schedule_key,
    schedule_put,
    schedule_run,
    schedule_update,
)
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused


class DynamoDbScheduleStore:
    """ScheduleStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get(self, name: ScheduleName) -> Schedule | None:
        item = self._client.get(self._table, schedule_key(name))
        return None if item is None else parse_schedule(item)

    def list(self, after: str, limit: int) -> Sequence[Schedule]:
        is_first = not after  # DynamoDB takes no empty text in a key
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :key" if is_first else "pk = :key AND sk > :after",
            ExpressionAttributeValues={":key": {"S": SCHEDULES}} | ({} if is_first else {":after": {"S": after}}),
            Limit=limit,
            ConsistentRead=True,
        )
        return [*map(parse_schedule, answer["Items"])]

    def due(self, end_ms: int) -> Sequence[Schedule]:
        pages = self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :key",
            FilterExpression="next_ms < :end",
            ExpressionAttributeValues={":key": {"S": SCHEDULES}, ":end": number(end_ms)},
        )
        return [parse_schedule(item) for items in pages for item in items]

    def change(self, old: Schedule | None, new: Schedule) -> None:
        write = schedule_put(new) if old is None else schedule_update(old, new)
        operation = "put_item" if old is None else "update_item"
        done = self._client.conditional(operation, is_repeatable=False, TableName=self._table, **write.arguments())
        if isinstance(done, Refused):
            raise concurrent_update(f"schedule {new.name}")

    def delete(self, seen: Schedule) -> bool:
        return self._did("delete_item", **schedule_delete(seen))

    def note(self, run: ScheduleRun) -> bool:
        return self._did("update_item", **schedule_run(run).arguments())

    def _did(self, operation: str, **arguments: Any) -> bool:
        done = self._client.conditional(operation, is_repeatable=True, TableName=self._table, **arguments)
        return isinstance(done, Applied)
