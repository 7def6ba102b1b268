"""PushStore on the groups table.

Lanes and states have versions, and each write of one expects the version before its own. So the client may send it
again after a lost answer: the second one is refused, and finds what the first one stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import concurrent_update
from penstock_core.ids import SubscriptionId, SubscriptionName, TopicId
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.lane import LaneKey, LaneState
from penstock_core.push.subscription import OrphanedStates, Subscription, SubscriptionNote, note_of
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item
from penstock_core.storage.keys import DELIVERY_PREFIX, LANE_PREFIX, ORPHANED_STATES, SUBSCRIPTIONS
from penstock_core.storage.push.delivery_item import (
    delivery_key,
    delivery_write,
    lane_key,
    lane_write,
    parse_delivery,
    parse_delivery_key,
    parse_lane,
    parse_lane_number,
    states_key,
)
from penstock_core.storage.push.subscription_item import (
    note_key,
    note_update,
    notes_key,
    orphans_item,
    orphans_key,
    parse_note,
    parse_orphans,
    parse_subscription,
    subscription_delete,
    subscription_key,
    subscription_put,
    subscription_update,
)
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused
from penstock_service.ports.push import SubscriptionStates


class DynamoDbPushStore:
    """PushStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get_subscription(self, name: SubscriptionName) -> Subscription | None:
        item = self._client.get(self._table, subscription_key(name))
        return None if item is None else parse_subscription(item)

    def list_subscriptions(self, after: str, limit: int) -> Sequence[Subscription]:
        return [*map(parse_subscription, self._page(SUBSCRIPTIONS, after, limit))]

    def has_subscriptions(self) -> bool:
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :key",
            ExpressionAttributeValues={":key": {"S": SUBSCRIPTIONS}},
            Select="COUNT",
            Limit=1,
            ConsistentRead=True,
        )
        return bool(answer["Count"])

    def change_subscription(self, old: Subscription | None, new: Subscription) -> None:
        if old is None:
            first: dict[str, Any] = {"Put": self._in_table(subscription_put(new).arguments())}
            others = [self._delete(orphans_key(new.subscription_id))]
        else:
            first = {"Update": self._in_table(subscription_update(old, new).arguments())}
            gone = sorted({*old.topics.values()} - {*new.topics.values()})
            others = [self._delete(note_key(topic_id, old.name)) for topic_id in gone]
        notes = [
            {"Update": self._in_table(note_update(topic_id, note_of(new)).arguments())}
            for topic_id in sorted({*new.topics.values()})
        ]
        self._transact(new.name, [first, *others, *notes])

    def delete_subscription(self, seen: Subscription, now_ms: int) -> None:
        orphans = OrphanedStates(subscription_id=seen.subscription_id, name=seen.name, since_ms=now_ms)
        self._transact(
            seen.name,
            [
                {"Delete": self._in_table(subscription_delete(seen))},
                {"Put": self._in_table({"Item": orphans_item(orphans)})},
                *(self._delete(note_key(topic_id, seen.name)) for topic_id in sorted({*seen.topics.values()})),
            ],
        )

    def note_orphans(self, orphans: OrphanedStates) -> None:
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=orphans_item(orphans))

    def orphaned_states(self, after: str, limit: int) -> Sequence[OrphanedStates]:
        return [*map(parse_orphans, self._page(ORPHANED_STATES, after, limit))]

    def forget_orphans(self, subscription_id: SubscriptionId) -> None:
        key = orphans_key(subscription_id)
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=key)

    def subscriptions_of(self, topic_id: TopicId) -> Sequence[SubscriptionNote]:
        return [*map(parse_note, self._query(notes_key(topic_id)))]

    def find_lane(self, key: LaneKey) -> LaneState | None:
        item = self._client.get(self._table, lane_key(key))
        return None if item is None else parse_lane(item)

    def put_lane(self, key: LaneKey, new: LaneState) -> LaneState | None:
        refused = self._write(lane_write(key, new))
        if refused is None:
            return new
        return None if refused.item is None else parse_lane(refused.item)

    def find_deliveries(self, keys: Sequence[DeliveryKey]) -> Mapping[DeliveryKey, DeliveryState]:
        if len(keys) == 1:
            item = self._client.get(self._table, delivery_key(keys[0]))
            return {} if item is None else {keys[0]: parse_delivery(item)}
        items = self._client.batch_get(self._table, [delivery_key(key) for key in keys])
        return {parse_delivery_key(item): parse_delivery(item) for item in items}

    def put_delivery(self, key: DeliveryKey, new: DeliveryState) -> DeliveryState | None:
        refused = self._write(delivery_write(key, new))
        if refused is None:
            return new
        return None if refused.item is None else parse_delivery(refused.item)

    def states_of(self, subscription_id: SubscriptionId) -> SubscriptionStates:
        items = [*self._query(states_key(subscription_id))]
        return SubscriptionStates(
            lanes={parse_lane_number(item): parse_lane(item) for item in items if _is(item, LANE_PREFIX)},
            deliveries={parse_delivery_key(item): parse_delivery(item) for item in items if _is(item, DELIVERY_PREFIX)},
        )

    def delete_states(self, subscription_id: SubscriptionId) -> None:
        keys = [{"pk": item["pk"], "sk": item["sk"]} for item in self._query(states_key(subscription_id))]
        self._client.batch_delete(self._table, keys)

    def _write(self, write: ConditionalPut | ConditionalUpdate) -> Refused | None:
        done = self._client.conditional(
            "put_item" if isinstance(write, ConditionalPut) else "update_item",
            is_repeatable=True,
            TableName=self._table,
            **write.arguments(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return None if isinstance(done, Applied) else done

    def _transact(self, name: SubscriptionName, actions: Sequence[dict[str, Any]]) -> None:
        """Sends the actions, once. The first one has the condition that no other writer was faster."""
        cancelled = self._client.transact_once(actions, is_repeatable=False)
        if cancelled is not None and cancelled.is_refused(0):
            raise concurrent_update(f"subscription {name}")
        if cancelled is not None:
            raise PenstockError(ErrorCode.THROTTLED, f"subscription {name}: another writer holds its items. Try again")

    def _delete(self, key: Item) -> dict[str, Any]:
        return {"Delete": self._in_table({"Key": key})}

    def _in_table(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"TableName": self._table, **arguments}

    def _page(self, key: str, after: str, limit: int) -> Sequence[Item]:
        """At most `limit` items whose sort keys come after `after`."""
        is_first = not after  # DynamoDB takes no empty text in a key
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :key" if is_first else "pk = :key AND sk > :after",
            ExpressionAttributeValues={":key": {"S": key}} | ({} if is_first else {":after": {"S": after}}),
            Limit=limit,
            ConsistentRead=True,
        )
        items: Sequence[Item] = answer["Items"]
        return items

    def _query(self, key: str) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :key",
            ExpressionAttributeValues={":key": {"S": key}},
        ):
            yield from items


def _is(item: Item, prefix: str) -> bool:
    return bool(item["sk"]["S"].startswith(prefix))
