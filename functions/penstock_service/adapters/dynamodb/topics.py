"""TopicStore on the topics table.

AclStore on the topics table: one item with all rules, and one with their revision.

ZoneStateStore on the topics table: one item with the states of all zones, and one with the pass that catches up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_core.acls.rule_set import EMPTY_BOOK, NO_REVISION, Owners, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.topic import DeletedTopic, Topic, note_of
from penstock_core.outcomes import errors_of_a_late_attempt
from penstock_core.storage.acls_item import (
    acl_mark_key,
    acl_owners_key,
    acl_rules_key,
    acl_writes,
    parse_acl_mark,
    parse_acl_owners,
    parse_acl_rules,
)
from penstock_core.storage.item import ConditionalPut, Item, number, rewriting
from penstock_core.storage.keys import DELETED, TOPIC
from penstock_core.storage.topic_item import (
    LAYOUT,
    MIRROR,
    MOVE,
    ORDERING,
    RAISE,
    RETENTION,
    SINCE,
    TOPIC_OPTIONAL,
    VALUE_SCHEMA,
    deleted_topic_item,
    deleted_topic_key,
    next_generation,
    parse_deleted_topic,
    parse_topic,
    raise_ended,
    retiring,
    topic_item,
    topic_key,
)
from penstock_core.storage.zone_states_item import parse_zone_states, zone_states_item, zone_states_key
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, ZoneStates
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused

if TYPE_CHECKING:
    from penstock_core.zones.zone_state import CatchUpPass


class DynamoDbTopicStore:
    """TopicStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def begin(self, note: DeletedTopic) -> None:
        # Sent once: a first attempt that lands late would bring the note back after the creation has removed it. Then
        # retention would take the topic for one that died, and remove its heads.
        self._client.call("put_item", is_repeatable=False, TableName=self._table, Item=deleted_topic_item(note))

    def create(self, topic: Topic) -> None:
        # Repeatable: no other creation has this topic id. So a repeat after a lost answer is refused, and then finds
        # the item of the first attempt.
        put = {
            "TableName": self._table,
            "Item": topic_item(topic),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
        delete = {
            "TableName": self._table,
            "Key": deleted_topic_key(topic.topic_id),
            "ConditionExpression": "attribute_exists(is_being_created)",
        }
        cancelled = self._client.transact_once([{"Put": put}, {"Delete": delete}], is_repeatable=True)
        if cancelled is None:
            return
        with errors_of_a_late_attempt(maybe_applied=cancelled.maybe_applied):
            self._check_created(topic)

    def _check_created(self, topic: Topic) -> None:
        stored = self.get(topic.name)
        if stored is None:
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE,
                f"topic {topic.name!r} was not created: it took too long, or another request is creating it; try again",
            )
        if stored.topic_id != topic.topic_id:
            raise PenstockError(ErrorCode.TOPIC_EXISTS, f"topic {topic.name!r} exists already")

    def give_up(self, note: DeletedTopic) -> bool:
        given_up = rewriting(
            deleted_topic_item(replace(note, is_being_created=False)),
            "attribute_exists(is_being_created)",
            {},
            optional=("is_being_created",),
        )
        done = self._client.conditional(
            "update_item", is_repeatable=True, TableName=self._table, **given_up.arguments()
        )
        return isinstance(done, Applied)

    def get(self, name: TopicName) -> Topic | None:
        item = self._client.get(self._table, topic_key(name))
        return None if item is None else parse_topic(item)

    def list(self) -> Sequence[Topic]:
        topics = [parse_topic(item) for items in self._scan() for item in items]
        return sorted(topics, key=lambda topic: topic.name)

    def page(self, after: str, limit: int, is_shown: Callable[[str], bool]) -> tuple[Sequence[Topic], bool]:
        behind = {
            name: item
            for items in self._scan()
            for item in items
            if (name := item["pk"]["S"]) > after and is_shown(name)
        }
        return [parse_topic(behind[name]) for name in sorted(behind)[:limit]], len(behind) > limit

    def count(self) -> int:
        return sum(map(len, self._scan(ProjectionExpression="pk")))

    def _scan(self, **arguments: str) -> Iterator[Sequence[Item]]:
        return self._client.read_pages(
            "scan",
            TableName=self._table,
            FilterExpression="sk = :topic",
            ExpressionAttributeValues={":topic": {"S": TOPIC}},
            **arguments,
        )

    def replace(self, old: Topic, new: Topic) -> None:
        stored = topic_item(old)
        condition = "topic_id = :id AND #partitions = :partitions AND config = :config"
        values = {":id": stored["topic_id"], ":partitions": stored["partitions"], ":config": stored["config"]}
        for name in (LAYOUT, ORDERING, RETENTION, VALUE_SCHEMA, SINCE, RAISE, MIRROR, MOVE):
            place = f":old_{name}"
            if name in stored:
                condition += f" AND {name} = {place}"
                values[place] = stored[name]
            else:
                condition += f" AND attribute_not_exists({name})"
        update = rewriting(
            topic_item(new), condition, values, names={"#partitions": "partitions"}, optional=TOPIC_OPTIONAL
        )
        done = self._client.conditional("update_item", is_repeatable=False, TableName=self._table, **update.arguments())
        if isinstance(done, Refused):
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE, f"topic {old.name!r} was altered by another request: read it and try again"
            )

    def retire(self, old: Topic, new: Topic) -> None:
        if not self._client.update_if(self._table, retiring(old, new)):
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {old.name!r} was altered by another request")

    def open_generation(self, old: Topic) -> None:
        if not self._client.update_if(self._table, next_generation(old)):
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {old.name!r} was altered by another request")

    def end_raise(self, topic: Topic) -> bool:
        return self._client.update_if(self._table, raise_ended(topic))

    def delete(self, topic: Topic, now_ms: int) -> None:
        stored = topic_item(topic)
        # A mirror that was promoted since it was read has records of its own.
        mirror = {":mirror": stored[MIRROR]} if MIRROR in stored else {}
        is_same = f"{MIRROR} = :mirror" if mirror else f"attribute_not_exists({MIRROR})"
        delete = {
            "TableName": self._table,
            "Key": topic_key(topic.name),
            # The caller deletes the heads of these partitions next, so there must be no further ones.
            "ConditionExpression": f"topic_id = :id AND #partitions = :partitions AND {is_same}",
            "ExpressionAttributeNames": {"#partitions": "partitions"},
            "ExpressionAttributeValues": {":id": stored["topic_id"], ":partitions": stored["partitions"], **mirror},
        }
        put = {"TableName": self._table, "Item": deleted_topic_item(note_of(topic, now_ms))}
        if self._client.transact_once([{"Delete": delete}, {"Put": put}], is_repeatable=False) is None:
            return
        now = self.get(topic.name)
        if now is None or now.topic_id != topic.topic_id:
            raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted by another request")
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE, f"topic {topic.name!r} is being altered by another request: try again"
        )

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

    def note_heads_removed(self, topic_id: TopicId, now_ms: int) -> None:
        self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            Key=deleted_topic_key(topic_id),
            UpdateExpression="SET heads_removed_at_ms = :now",
            ConditionExpression="attribute_exists(pk) AND attribute_not_exists(heads_removed_at_ms)",
            ExpressionAttributeValues={":now": number(now_ms)},
        )

    def forget_deleted(self, topic_id: TopicId) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=deleted_topic_key(topic_id))


class DynamoDbAclStore:
    """AclStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def revision(self) -> str:
        item = self._client.get(self._table, acl_mark_key())
        return NO_REVISION if item is None else parse_acl_mark(item)

    def get(self) -> RuleBook:
        item = self._client.get(self._table, acl_rules_key())
        return EMPTY_BOOK if item is None else parse_acl_rules(item)

    def owners(self) -> Owners:
        item = self._client.get(self._table, acl_owners_key())
        return {} if item is None else parse_acl_owners(item)

    def change(self, seen: str, book: RuleBook, owners: Owners | None = None) -> None:
        actions = [
            {
                "Put" if isinstance(write, ConditionalPut) else "Update": {
                    "TableName": self._table,
                    **write.arguments(),
                }
            }
            for write in acl_writes(seen, book, owners)
        ]
        cancelled = self._client.transact_once(actions, is_repeatable=False)
        if cancelled is not None and cancelled.is_any_refused:
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "another request changed the access rules: try again")
        if cancelled is not None:
            raise PenstockError(ErrorCode.THROTTLED, "another writer holds the access rules: try again")


class DynamoDbZoneStateStore:
    """ZoneStateStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get(self) -> ZoneStates:
        item = self._client.get(self._table, zone_states_key())
        return EVERY_ZONE_IN_SYNC if item is None else parse_zone_states(item)

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        expected = old.version or None
        self._write(zone_states_item(new), "version", expected, "another request changed a zone's state: try again")

    def get_pass(self) -> CatchUpPass | None:
        from penstock_core.storage.zone_states_item import catch_up_pass_key, parse_catch_up_pass  # for one function

        item = self._client.get(self._table, catch_up_pass_key())
        return None if item is None else parse_catch_up_pass(item)

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        from penstock_core.storage.zone_states_item import catch_up_pass_item

        expected = None if old is None else old.saves
        self._write(
            catch_up_pass_item(new),
            "saves",
            expected,
            "another run of recover_zones has saved its pass: leave the pass to that run",
        )

    def _write(self, item: Item, counter: str, expected: int | None, refusal: str) -> None:
        """Writes the item if the stored one's `counter` is `expected`, or if there is none and `expected` is None."""
        operation, arguments = "put_item", ConditionalPut(item=item, condition="attribute_not_exists(pk)").arguments()
        if expected is not None:
            update = rewriting(
                item, "#counter = :expected", {":expected": number(expected)}, names={"#counter": counter}
            )
            operation, arguments = "update_item", update.arguments()
        done = self._client.conditional(operation, is_repeatable=False, TableName=self._table, **arguments)
        if isinstance(done, Refused):
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, refusal)
