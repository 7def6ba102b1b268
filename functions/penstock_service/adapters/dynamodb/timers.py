"""TimerStore on the log table."""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.index import unknown_partition
from penstock_core.log.ref import encode_ref, span
from penstock_core.log.timer import DueMinute, Timer, TimerPlace, cancelled, delivered, delivered_ref
from penstock_core.storage.head_item import head_key
from penstock_core.storage.item import Item, number
from penstock_core.storage.timer_item import (
    due_minute_key,
    due_minute_shards,
    minute_sort_key,
    parse_due_minute,
    parse_switch,
    parse_timer,
    settling,
    switch_item,
    switch_key,
    timer_key,
    timer_put,
    timer_sort_key,
)
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient


class DynamoDbTimerStore:
    """TimerStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def reserve(self, minute: DueMinute, count: int) -> int:
        answer = self._client.call(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            Key=due_minute_key(minute),
            UpdateExpression="ADD timers :count",
            ExpressionAttributeValues={":count": number(count)},
            ReturnValues="UPDATED_NEW",
        )
        return int(answer["Attributes"]["timers"]["N"])

    def put(self, timer: Timer) -> Timer:
        done = self._client.conditional(
            "put_item",
            is_repeatable=True,
            TableName=self._table,
            **timer_put(timer).arguments(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return timer
        if done.item is None:
            raise _vanished(timer)
        return parse_timer(done.item)

    def get(self, key: PartitionKey, place: TimerPlace) -> Timer | None:
        item = self._client.get(self._table, timer_key(key, place))
        return None if item is None else parse_timer(item)

    def waiting(
        self, key: PartitionKey, start_ms: int, end_ms: int, limit: int, after: TimerPlace | None = None
    ) -> Sequence[Timer]:
        if end_ms <= start_ms:
            return []
        start: dict[str, Any] = {}
        if after is not None and after.due_ms >= start_ms:
            start = {"ExclusiveStartKey": timer_key(key, after)}
        found: list[Timer] = []
        while True:
            answer = self._client.call(
                "query",
                is_repeatable=True,
                TableName=self._table,
                KeyConditionExpression="pk = :partition AND sk BETWEEN :first AND :last",
                FilterExpression="attribute_not_exists(settled_ms)",
                ExpressionAttributeValues={
                    ":partition": {"S": str(key)},
                    ":first": {"S": timer_sort_key(start_ms)},
                    ":last": {"S": timer_sort_key(end_ms)},
                },
                Limit=limit,
                ConsistentRead=True,
                **start,
            )
            found += map(parse_timer, answer["Items"])
            if len(found) >= limit or "LastEvaluatedKey" not in answer:
                return found[:limit]
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def promote(self, key: PartitionKey, timers: Sequence[Timer], now_ms: int) -> bool:
        refs = [delivered_ref(timer, now_ms) for timer in timers]
        head = {
            "Key": head_key(key),
            "UpdateExpression": "SET next_offset = next_offset + :span, tail = list_append(tail, :refs), "
            "under_replicated = :none",
            "ConditionExpression": "attribute_exists(next_offset)",
            "ExpressionAttributeValues": {
                ":span": number(span(refs)),
                ":refs": {"L": [{"B": encode_ref(ref)} for ref in refs]},
                ":none": number(0),
            },
        }
        updates = [head, *(settling(delivered(timer, now_ms)).arguments() for timer in timers)]
        done = self._client.transact([{"Update": {"TableName": self._table, **each}} for each in updates])
        if done is None:
            return True
        if done.is_refused(0):
            raise unknown_partition(key)
        return False

    def cancel(self, key: PartitionKey, place: TimerPlace, now_ms: int) -> Timer | None:
        stored = self.get(key, place)
        if stored is None or not stored.is_waiting:
            return stored
        mark = cancelled(stored, now_ms)
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            **settling(mark).arguments(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return mark
        return None if done.item is None else parse_timer(done.item)

    def delete(self, key: PartitionKey, place: TimerPlace) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=timer_key(key, place))

    def due_minutes(self, end_minute: int) -> Sequence[DueMinute]:
        return sorted(
            parse_due_minute(item) for shard in due_minute_shards() for item in self._minutes_of(shard, end_minute)
        )

    def forget_minute(self, minute: DueMinute) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=due_minute_key(minute))

    def switched_on_ms(self) -> int | None:
        item = self._client.get(self._table, switch_key())
        return None if item is None else parse_switch(item)

    def note_switched_on(self, now_ms: int) -> None:
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=switch_item(now_ms))

    def _minutes_of(self, shard: str, end_minute: int) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :shard AND sk < :end",
            ExpressionAttributeValues={":shard": {"S": shard}, ":end": {"S": minute_sort_key(end_minute)}},
        ):
            yield from items


def _vanished(timer: Timer) -> PenstockError:
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"DynamoDB refused timer {timer.place.timer_id.hex()} and did not say what it has there: try again",
    )
