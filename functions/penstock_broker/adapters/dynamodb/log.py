"""LogIndex on the log table: heads and pages of partitions.

The order of writes that matters is inside single calls here: an append is one UpdateItem, a roll one transaction.
An append of an idempotent producer may be sent again after a lost answer, as its condition refuses a second one.
List elements are removed in descending order: AWS evaluates the indexes against the list as it was, some emulators
against the list as it shrinks, and so all agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from penstock_broker.adapters.dynamodb.client import DynamoDbClient, condition_failed, error_code
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, TopicId
from penstock_core.index import (
    EMPTY_HEAD,
    Head,
    Page,
    Roll,
    state_written,
    unknown_partition,
    with_log_start,
    with_zones_marked,
)
from penstock_core.items import (
    Item,
    head_item,
    head_key,
    number,
    page_item,
    page_item_key,
    parse_head,
    parse_page,
    parse_producer,
    producer_item,
    producer_item_key,
)
from penstock_core.keys import PAGE_LAST, PartitionKey, page_key, producer_name
from penstock_core.producer_state import ProducerSequence, ProducerState, encode_state, entries_preceding
from penstock_core.ref import LocatedRef, Ref, encode_ref, encode_refs

_BATCH_GET_MAX = 100
_MARK_ATTEMPTS_MAX = 5
_APPEND = "SET next_offset = next_offset + :span, tail = list_append(tail, :refs), under_replicated = :unconfirmed"
_HEAD_EXISTS = "attribute_exists(next_offset)"


class DynamoDbLogIndex:
    """LogIndex."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def create_head(self, key: PartitionKey) -> None:
        try:
            self._client.call(
                "put_item",
                is_repeatable=True,
                TableName=self._table,
                Item=head_item(key, EMPTY_HEAD),
                ConditionExpression="attribute_not_exists(pk)",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise

    def delete_head(self, key: PartitionKey) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=head_key(key))

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        if len(partitions) == 1:
            answer = self._client.call(
                "get_item",
                is_repeatable=True,
                TableName=self._table,
                Key=head_key(partitions[0]),
                ConsistentRead=True,
            )
            return {partitions[0]: parse_head(answer["Item"])} if "Item" in answer else {}
        found: dict[PartitionKey, Head] = {}
        for start in range(0, len(partitions), _BATCH_GET_MAX):
            found.update(self._batch_get(partitions[start : start + _BATCH_GET_MAX]))
        return found

    def append(self, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:
        try:
            answer = self._client.call(
                "update_item",
                is_repeatable=False,
                TableName=self._table,
                Key=head_key(key),
                UpdateExpression=_APPEND,
                ConditionExpression=_HEAD_EXISTS,
                ExpressionAttributeValues=_append_values(ref, unconfirmed_zones),
                ReturnValues="ALL_NEW",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise unknown_partition(key) from error
        return parse_head(answer["Attributes"])

    def append_in_sequence(
        self,
        key: PartitionKey,
        ref: Ref,
        unconfirmed_zones: int,
        sequence: ProducerSequence,
        unlisted_since: int,
    ) -> tuple[bool, Head]:
        values: Item = {
            **_append_values(ref, unconfirmed_zones),
            ":entry": {"B": encode_state(state_written(ref, sequence))},
            ":evictions": number(unlisted_since),
        }
        condition = "attribute_not_exists(producers.#producer) AND evictions = :evictions"
        if bounds := entries_preceding(sequence):
            condition += " OR producers.#producer BETWEEN :lowest AND :highest"
            values |= {":lowest": {"B": bounds[0]}, ":highest": {"B": bounds[1]}}
        try:
            answer = self._client.call(
                "update_item",
                is_repeatable=True,
                TableName=self._table,
                Key=head_key(key),
                UpdateExpression=f"{_APPEND}, producers.#producer = :entry",
                ConditionExpression=f"{_HEAD_EXISTS} AND ({condition})",
                ExpressionAttributeNames={"#producer": producer_name(sequence.producer_id)},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            if "Item" not in error.response:
                raise unknown_partition(key) from error
            return False, parse_head(error.response["Item"])
        return True, parse_head(answer["Attributes"])

    def evicted_producer(self, key: PartitionKey, producer_id: int) -> ProducerState | None:
        answer = self._client.call(
            "get_item",
            is_repeatable=True,
            TableName=self._table,
            Key=producer_item_key(key, producer_id),
            ConsistentRead=True,
        )
        return parse_producer(answer["Item"]) if "Item" in answer else None

    def roll(self, key: PartitionKey, roll: Roll) -> bool:
        page = {
            "TableName": self._table,
            "Item": page_item(key, roll.page),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
        evicted = [
            {"Put": {"TableName": self._table, "Item": producer_item(key, producer_id, state)}}
            for producer_id, state in roll.evicted.items()
        ]
        try:
            self._client.call(
                "transact_write_items",
                is_repeatable=True,  # the condition on tail_base refuses a second one
                TransactItems=[{"Put": page}, {"Update": self._shorter_head(key, roll)}, *evicted],
            )
        except ClientError as error:
            if error_code(error) != "TransactionCanceledException":
                raise
            return False
        return True

    def _shorter_head(self, key: PartitionKey, roll: Roll) -> dict[str, Any]:
        sets = "SET tail_base = :end, rolled_max_timestamp_ms = :newest, rolled_bytes = :bytes"
        conditions = ["tail_base = :base"]
        removals = [f"tail[{index}]" for index in reversed(range(roll.ref_count))]
        values: Item = {
            ":base": number(roll.page.base_offset),
            ":end": number(roll.page.end_offset),
            ":newest": number(roll.page.max_timestamp_ms),
            ":bytes": number(roll.page.rolled_bytes),
        }
        update: dict[str, Any] = {"TableName": self._table, "Key": head_key(key), "ExpressionAttributeValues": values}
        if roll.evicted:
            sets += ", evictions = evictions + :one"
            values[":one"] = number(1)
            names = {f"#p{index}": producer_name(producer_id) for index, producer_id in enumerate(roll.evicted)}
            update["ExpressionAttributeNames"] = names
            for index, (name, state) in enumerate(zip(names, roll.evicted.values(), strict=True)):
                conditions.append(f"producers.{name} = :p{index}")
                removals.append(f"producers.{name}")
                values[f":p{index}"] = {"B": encode_state(state)}
        return {
            **update,
            "UpdateExpression": f"{sets} REMOVE {', '.join(removals)}",
            "ConditionExpression": " AND ".join(conditions),
        }

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        return self._query_pages(key, page_key(offset + 1), PAGE_LAST, limit, is_ascending=True)

    def pages_before(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        return self._query_pages(key, page_key(0), page_key(offset), limit, is_ascending=False)

    def _query_pages(
        self, key: PartitionKey, first: str, last: str, limit: int, *, is_ascending: bool
    ) -> Sequence[Page]:
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :partition AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":partition": {"S": str(key)},
                ":first": {"S": first},
                ":last": {"S": last},
            },
            Limit=limit,
            ScanIndexForward=is_ascending,
            ConsistentRead=True,
        )
        return [parse_page(item) for item in answer["Items"]]

    def raise_log_start(self, key: PartitionKey, offset: Offset) -> Head:
        try:
            answer = self._client.call(
                "update_item",
                is_repeatable=True,
                TableName=self._table,
                Key=head_key(key),
                UpdateExpression="SET log_start_offset = :offset",
                ConditionExpression="log_start_offset < :offset AND next_offset >= :offset",
                ExpressionAttributeValues={":offset": number(offset)},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            if "Item" not in error.response:
                raise unknown_partition(key) from error
            return with_log_start(parse_head(error.response["Item"]), offset)
        return parse_head(answer["Attributes"])

    def note_log_start(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        is_noted = self._updated(
            head_key(key),
            "SET settling_offset = :offset, settling_since_ms = :seen",
            "attribute_exists(next_offset)",
            {":offset": number(offset), ":seen": number(seen_ms)},
        )
        if not is_noted:
            raise unknown_partition(key)

    def delete_page(self, key: PartitionKey, end_offset: Offset) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=page_item_key(key, end_offset))

    def mark_stored(self, key: PartitionKey, located: LocatedRef, zones: int) -> bool:
        for _ in range(_MARK_ATTEMPTS_MAX):
            head = self.heads([key]).get(key)
            if head is None:
                return False
            is_rolled = located.base_offset < head.tail_base
            is_marked = (self._mark_in_page if is_rolled else self._mark_in_tail)(key, head, located, zones)
            if is_marked is not None:
                return is_marked
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"the ref at offset {located.base_offset} of partition {key} was changed by others "
            f"{_MARK_ATTEMPTS_MAX} times meanwhile: try again",
        )

    def _mark_in_tail(self, key: PartitionKey, head: Head, located: LocatedRef, zones: int) -> bool | None:
        """None if the tail was rolled, or the ref changed, since `head` was read."""
        marked = with_zones_marked(head.tail_base, head.tail, located, zones)
        if marked is None:
            return False
        index, ref = marked
        # Each value of under_replicated has passed through the stream when it was written: clearing it here, whoever
        # set it, hides nothing, and lets this update wake nobody.
        return ref == head.tail[index] or self._updated(
            head_key(key),
            f"SET tail[{index}] = :new, under_replicated = :none",
            f"tail_base = :base AND tail[{index}] = :old",
            {
                ":new": {"B": encode_ref(ref)},
                ":old": {"B": encode_ref(head.tail[index])},
                ":base": number(head.tail_base),
                ":none": number(0),
            },
        )

    def _mark_in_page(self, key: PartitionKey, head: Head, located: LocatedRef, zones: int) -> bool | None:  # noqa: ARG002 - as _mark_in_tail
        pages = self.pages(key, located.base_offset, 1)
        marked = with_zones_marked(pages[0].base_offset, pages[0].refs, located, zones) if pages else None
        if marked is None:
            return False
        index, ref = marked
        old = pages[0]
        new = replace(old, refs=(*old.refs[:index], ref, *old.refs[index + 1 :]))
        return new == old or self._updated(
            page_item_key(key, old.end_offset),
            "SET refs = :new",
            "refs = :old",
            {":new": {"B": encode_refs(new.refs)}, ":old": {"B": encode_refs(old.refs)}},
        )

    def _updated(self, item_key: Item, update: str, condition: str, values: Item) -> bool | None:
        """None if the condition does not hold, be it by an attempt of our own whose answer was lost."""
        try:
            self._client.call(
                "update_item",
                is_repeatable=True,
                TableName=self._table,
                Key=item_key,
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            return None
        return True

    def _batch_get(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        found: dict[PartitionKey, Head] = {}
        request: dict[str, Any] = {self._table: {"Keys": [head_key(key) for key in partitions], "ConsistentRead": True}}
        for answer in self._client.batch_get(request):
            for item in answer["Responses"].get(self._table, ()):
                topic_id, partition = item["pk"]["S"].split("#")
                found[PartitionKey(TopicId(topic_id), Partition(int(partition)))] = parse_head(item)
        return found


def _append_values(ref: Ref, unconfirmed_zones: int) -> Item:
    return {
        ":span": number(ref.offset_span),
        ":refs": {"L": [{"B": encode_ref(ref)}]},
        ":unconfirmed": number(unconfirmed_zones),
    }
