"""TimerStore on the log table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.index import unknown_partition
from penstock_core.log.ref import Ref
from penstock_core.log.timer import DueMinute, PlaceRange, Timer, TimerPlace, cancelled
from penstock_core.storage.head_item import head_key
from penstock_core.storage.item import Item, number
from penstock_core.storage.timer_item import (
    due_minute_key,
    due_minute_shards,
    head_write,
    minute_sort_key,
    page_writes,
    parse_due_minute,
    parse_switch,
    parse_timer,
    parse_told,
    refused_outcome,
    settling,
    switch_item,
    switch_key,
    timer_key,
    timer_put,
    timer_shard_key,
    timer_sort_key,
    timer_writes,
    told_item,
    told_key,
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

    def waiting(self, key: PartitionKey, shard: int, places: PlaceRange, limit: int) -> Sequence[Timer]:
        start_ms, end_ms, after = places
        if end_ms <= start_ms:
            return []
        first = timer_sort_key(start_ms)
        if after is not None and after.due_ms >= start_ms:
            first = timer_sort_key(after.due_ms, f"{after.timer_id.hex()}~")
        last = timer_sort_key(end_ms)
        if first > last:
            return []  # DynamoDB refuses such a range
        pages: dict[str, Any] = {"Limit": limit}
        found: list[Timer] = []
        while True:
            answer = self._client.call(
                "query",
                is_repeatable=True,
                TableName=self._table,
                KeyConditionExpression="pk = :partition AND sk BETWEEN :first AND :last",
                FilterExpression="attribute_not_exists(settled_ms)",
                ExpressionAttributeValues={
                    ":partition": {"S": timer_shard_key(key, shard)},
                    ":first": {"S": first},
                    ":last": {"S": last},
                },
                ConsistentRead=True,
                **pages,
            )
            found += map(parse_timer, answer["Items"])
            if len(found) >= limit or "LastEvaluatedKey" not in answer:
                return found[:limit]
            pages = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}  # marks are many: a megabyte at a time

    def promote(self, delivery: Delivery) -> DeliveryOutcome:
        updates = [head_write(delivery), *timer_writes(delivery)]
        head, *timers = [{"Update": {"TableName": self._table, **each.arguments()}} for each in updates]
        pages = [{"Put": {"TableName": self._table, **each.arguments()}} for each in page_writes(delivery)]
        actions = [head, *pages, *timers]
        cancelled = self._client.transact(actions)
        if cancelled is None:
            return DeliveryOutcome.DONE
        outcome = refused_outcome(delivery, [cancelled.is_refused(action) for action in range(len(actions))])
        if outcome is None:
            if self._client.get(self._table, head_key(delivery.key)) is not None:
                return DeliveryOutcome.MOVED  # the log was moved to its mirror: the next read of the head tells so
            raise unknown_partition(delivery.key)
        return outcome

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

    def note_told(self, timer: Timer) -> None:
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=told_item(timer))

    def find_told(self, key: PartitionKey, refs: Sequence[Ref]) -> Mapping[Ref, TimerPlace]:
        by_key = {told_key(key, ref)["sk"]["S"]: ref for ref in refs}
        items = self._client.batch_get(self._table, [told_key(key, ref) for ref in by_key.values()])
        return {by_key[item["sk"]["S"]]: parse_told(item) for item in items}

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
