"""LogIndex on the log table: heads and pages of partitions.

Each write is of one item, so DynamoDB puts all writes of a head in order, and none cancels another. The append of an
idempotent producer may be sent again after a lost answer, because its condition refuses a second one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_core.ids import Offset, PartitionKey, TopicId, parse_partition_key
from penstock_core.log.index import (
    EMPTY_HEAD,
    HELD_LAYOUT,
    Head,
    HeadAppend,
    HeadJump,
    HeldHead,
    Page,
    Waiter,
    appended,
    partition_closed,
    state_written,
    unknown_partition,
    with_log_start,
    without_waiter,
)
from penstock_core.log.ref import LocatedRef, Ref, encode_ref, encode_refs
from penstock_core.outcomes import errors_of_a_late_attempt
from penstock_core.records.producer_state import ProducerSequence, ProducerState, encode_state, entries_preceding
from penstock_core.storage.head_item import (
    CLOSED,
    MIRROR,
    MOVED_AT,
    head_item,
    head_key,
    owner_name,
    parse_head,
    parse_producer,
    producer_item_key,
    producer_put,
)
from penstock_core.storage.head_updates import (
    IS_OPEN,
    PUSH_WAITER_TAKEN,
    TAKE_PUSH_WAITER,
    arming,
    giving_up,
    jumping,
    layout_move,
    log_naming,
    mirroring,
    moving,
    passed_raising,
    producers_removal,
    promoting,
    push_arming,
    reader_counting,
    reopening,
    returning,
    tail_shortening,
)
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number
from penstock_core.storage.keys import producer_name
from penstock_core.storage.page_item import (
    PAGE_LAST,
    page_item,
    page_item_key,
    page_key,
    parse_merge_mark,
    parse_page,
)
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused
from penstock_service.adapters.dynamodb.marks import RefMarker

if TYPE_CHECKING:
    from penstock_core.mirror.group_offsets import MirroredOffsets
    from penstock_core.mirror.push import HeadMove, HeadReopening, LogEnd, MirrorAppend

_APPEND = (
    "SET next_offset = next_offset + :span, tail = list_append(tail, :refs), under_replicated = :unconfirmed, "
    f"{TAKE_PUSH_WAITER}"
)
_TAKE_WAITER = f" REMOVE {Waiter.READER.value}"
_HEAD_EXISTS = "attribute_exists(tail_base)"  # in a moved log, too


class DynamoDbLogIndex:
    """LogIndex: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def create_head(self, key: PartitionKey, has_push_waiter: bool = False, held: HeldHead | None = None) -> None:
        head = replace(EMPTY_HEAD, has_push_waiter=has_push_waiter)
        if held is not None:
            head = replace(head, mirror=held.mirror, closed_ms=held.closed_ms, layout=HELD_LAYOUT)
        put = ConditionalPut(item=head_item(key, head), condition="attribute_not_exists(pk)")
        if held is None:  # a push may have made one for a partition that its topic never got: it was promoted first
            put = ConditionalPut(
                item=put.item,
                condition=f"{put.condition} OR (attribute_exists({MIRROR}) AND next_offset = :zero)",
                values={":zero": number(0)},
            )
        self._client.conditional("put_item", is_repeatable=True, TableName=self._table, **put.arguments())

    def delete_head(self, key: PartitionKey) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=head_key(key))

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        if len(partitions) == 1:
            item = self._client.get(self._table, head_key(partitions[0]))
            return {} if item is None else {partitions[0]: parse_head(item)}
        items = self._client.batch_get(self._table, [head_key(key) for key in partitions])
        return {parse_partition_key(item["pk"]["S"]): parse_head(item) for item in items}

    def append(self, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> HeadAppend:
        done = self._client.conditional(
            "update_item",
            is_repeatable=False,
            TableName=self._table,
            Key=head_key(key),
            UpdateExpression=_APPEND + _TAKE_WAITER,
            ConditionExpression=IS_OPEN,
            ExpressionAttributeValues=_append_values(ref, unconfirmed_zones),
            ReturnValues="ALL_OLD",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Refused):
            raise partition_closed(key) if CLOSED in (done.item or {}) else unknown_partition(key)
        return _after_append(done, ref)

    def append_in_sequence(
        self,
        key: PartitionKey,
        ref: Ref,
        unconfirmed_zones: int,
        sequence: ProducerSequence,
        looked_at: Offset | None,
    ) -> HeadAppend:
        values: Item = {
            **_append_values(ref, unconfirmed_zones),
            ":entry": {"B": encode_state(state_written(ref, sequence))},
            **({":owner": {"B": sequence.owner}} if sequence.owner else {}),
        }
        names = {"#producer": producer_name(sequence.producer_id)}
        bounds = entries_preceding(sequence)
        if sequence.owner or bounds:
            names |= {"#owner": owner_name(sequence.producer_id)}
        owning = ", #owner = :owner" if sequence.owner else ""
        conditions = []
        if looked_at is not None:
            conditions.append("attribute_not_exists(producers.#producer) AND tail_base <= :looked")
            values |= {":looked": number(looked_at)}
        elif sequence.first_sequence == 0:
            conditions.append("attribute_not_exists(producers.#producer) AND evictions = :none")
            values |= {":none": number(0)}
        if bounds:
            is_free = "attribute_not_exists(#owner)"
            is_owners = f"({is_free} OR #owner = :owner)" if sequence.owner else is_free
            conditions.append(f"producers.#producer BETWEEN :lowest AND :highest AND {is_owners}")
            values |= {":lowest": {"B": bounds[0]}, ":highest": {"B": bounds[1]}}
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            Key=head_key(key),
            UpdateExpression=f"{_APPEND}, producers.#producer = :entry{owning}{_TAKE_WAITER}",
            ConditionExpression=f"{IS_OPEN} AND ({' OR '.join(conditions)})",
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_OLD",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return _after_append(done, ref)
        if done.item is None:
            raise unknown_partition(key)
        return HeadAppend(is_appended=False, head=parse_head(done.item), maybe_applied=done.maybe_applied)

    def arm(self, key: PartitionKey, seen_next_offset: Offset, now_ms: int) -> tuple[bool, Head | None]:
        return self._changed_head(arming(key, seen_next_offset, now_ms))

    def arm_push(self, key: PartitionKey, seen_next_offset: Offset) -> tuple[bool, Head | None]:
        return self._changed_head(push_arming(key, seen_next_offset))

    def move_to_layout(self, key: PartitionKey, layout: int, closed_ms: int | None) -> Head | None:
        return self._changed_head(layout_move(key, layout, closed_ms))[1]

    def jump(self, key: PartitionKey, jump: HeadJump, unconfirmed_zones: int) -> tuple[bool, Head | None]:
        return self._changed_head(jumping(key, jump, unconfirmed_zones))

    def name_log(self, key: PartitionKey, log_id: str) -> Head | None:
        return self._changed_head(log_naming(key, log_id))[1]

    def append_mirrored(self, key: PartitionKey, append: "MirrorAppend", unconfirmed_zones: int) -> HeadAppend | None:
        if append.marks:
            return self._append_marked(key, append, unconfirmed_zones)
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            **mirroring(key, append, unconfirmed_zones).arguments(),
            ReturnValues="ALL_OLD",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            old = parse_head(done.attributes)
            return HeadAppend(is_appended=True, head=append.appended_to(old), took_waiter=old.waiter_ms is not None)
        if done.item is None:
            return None
        return HeadAppend(is_appended=False, head=parse_head(done.item), maybe_applied=done.maybe_applied)

    def _append_marked(self, key: PartitionKey, append: "MirrorAppend", unconfirmed_zones: int) -> HeadAppend | None:
        """The append together with the marks. A transaction tells no waiter, so the writer sends a wake-up anyway."""
        from penstock_core.storage.timer_item import timer_item

        head = self.heads([key]).get(key)
        if head is None or head.next_offset != append.base_offset:
            return None if head is None else HeadAppend(is_appended=False, head=head)
        update = {"Update": {"TableName": self._table, **mirroring(key, append, unconfirmed_zones).arguments()}}
        marks = [{"Put": {"TableName": self._table, "Item": timer_item(mark)}} for mark in append.marks]
        if self._client.transact([update, *marks]) is None:
            return HeadAppend(is_appended=True, head=append.appended_to(head), took_waiter=True)
        head = self.heads([key]).get(key)
        return None if head is None else HeadAppend(is_appended=False, head=head)

    def promote(
        self, key: PartitionKey, mirror: str, layout: int, closed_ms: int | None, end: "LogEnd | None" = None
    ) -> Head | None:
        return self._changed_head(promoting(key, mirror, layout, closed_ms, end))[1]

    def move(self, key: PartitionKey, move: "HeadMove") -> Head | None:
        return self._changed_head(moving(key, move))[1]

    def reopen(self, key: PartitionKey, reopened: "HeadReopening") -> Head | None:
        is_done, head = self._changed_head(reopening(key, reopened))
        if is_done or head is None or head.move:
            return head
        return self._changed_head(giving_up(key, reopened))[1]

    def return_to(self, key: PartitionKey, move: int, mirror: str) -> Head | None:
        return self._changed_head(returning(key, move, mirror))[1]

    def put_offsets(self, topic_id: TopicId, number: int, offsets: "MirroredOffsets") -> tuple[int, "MirroredOffsets"]:
        from penstock_core.mirror.group_offsets import NO_OFFSETS
        from penstock_core.storage.mirrored_offsets_item import SHARE, offsets_item, parse_offsets
        from penstock_core.storage.push.delivery_item import versioned_write

        write = versioned_write(offsets_item(topic_id, number, offsets), number, optional=[SHARE])
        done = self._client.conditional(
            "put_item" if isinstance(write, ConditionalPut) else "update_item",
            is_repeatable=True,
            TableName=self._table,
            **write.arguments(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return number, offsets
        return (0, NO_OFFSETS) if done.item is None else parse_offsets(done.item)

    def find_offsets(self, topic_id: TopicId) -> "MirroredOffsets | None":
        from penstock_core.storage.mirrored_offsets_item import offsets_key, parse_offsets

        item = self._client.get(self._table, offsets_key(topic_id))
        return None if item is None else parse_offsets(item)[1]

    def delete_offsets(self, topic_id: TopicId) -> None:
        from penstock_core.storage.mirrored_offsets_item import offsets_key

        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=offsets_key(topic_id))

    def evicted_producer(self, key: PartitionKey, producer_id: int) -> ProducerState | None:
        item = self._client.get(self._table, producer_item_key(key, producer_id))
        return None if item is None else parse_producer(item)

    def put_page(self, key: PartitionKey, page: Page) -> Page | None:
        done = self._client.conditional(
            "put_item",
            is_repeatable=True,
            TableName=self._table,
            Item=page_item(key, page),
            ConditionExpression="attribute_not_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return page
        if done.item is None or parse_merge_mark(done.item) is not None:
            return None
        return parse_page(done.item)

    def replace_page(self, key: PartitionKey, old: Page, new: Page) -> bool:
        update = ConditionalUpdate(
            key=page_item_key(key, old.end_offset),
            update="SET refs = :new",
            condition="base_offset = :base AND refs = :old",
            values={
                ":base": number(old.base_offset),
                ":new": {"B": encode_refs(new.refs)},
                ":old": {"B": encode_refs(old.refs)},
            },
        )
        return self._client.update_if(self._table, update)

    def shorten_tail(self, key: PartitionKey, page: Page) -> tuple[bool, Head | None]:
        return self._changed_head(tail_shortening(key, page))

    def put_evicted(self, key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> None:
        put = producer_put(key, producer_id, state, evicted_ms)
        self._client.conditional("put_item", is_repeatable=True, TableName=self._table, **put.arguments())

    def remove_producers(self, key: PartitionKey, leaving: Mapping[int, ProducerState]) -> tuple[bool, Head | None]:
        return self._changed_head(producers_removal(key, leaving))

    def _changed_head(self, update: ConditionalUpdate) -> tuple[bool, Head | None]:
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            **update.arguments(),
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return True, parse_head(done.attributes)
        return False, None if done.item is None else parse_head(done.item)

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        return self._query_pages(key, page_key(offset + 1), PAGE_LAST, limit, is_ascending=True)

    def pages_before(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        return self._query_pages(key, page_key(0), page_key(offset), limit, is_ascending=False)

    def _query_pages(
        self, key: PartitionKey, first: str, last: str, limit: int, *, is_ascending: bool
    ) -> Sequence[Page]:
        """The pages with keys in [first, last]. One query, and one more after each row of marks of merged pages."""
        found: list[Page] = []
        start: dict[str, Any] = {}
        items_max = limit
        while True:
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
                Limit=items_max,
                ScanIndexForward=is_ascending,
                ConsistentRead=True,
                **start,
            )
            marks = [parse_merge_mark(item) for item in answer["Items"]]
            found += [parse_page(item) for item, mark in zip(answer["Items"], marks, strict=True) if mark is None]
            if "LastEvaluatedKey" not in answer or len(found) >= limit or all(mark is None for mark in marks):
                return found[:limit]
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
            items_max = limit - len(found)
            if (mark := marks[-1]) is not None:
                items_max += mark.marks_behind if is_ascending else mark.marks_before

    def raise_log_start(self, key: PartitionKey, offset: Offset) -> Head:
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            Key=head_key(key),
            UpdateExpression="SET log_start_offset = :offset",
            ConditionExpression=f"log_start_offset < :offset AND (next_offset >= :offset OR {MOVED_AT} >= :offset)",
            ExpressionAttributeValues={":offset": number(offset)},
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return parse_head(done.attributes)
        if done.item is None:
            raise unknown_partition(key)
        with errors_of_a_late_attempt(maybe_applied=done.maybe_applied):  # it may come once the log has grown so far
            return with_log_start(parse_head(done.item), offset)

    def count_reader(self, key: PartitionKey) -> Head | None:
        return self._changed_head(reader_counting(key))[1]

    def raise_passed(self, key: PartitionKey, offset: Offset, reader_changes: int) -> tuple[bool, Head | None]:
        return self._changed_head(passed_raising(key, offset, reader_changes))

    def note_log_start(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        noting = ConditionalUpdate(
            key=head_key(key),
            update="SET settling_offset = :offset, settling_since_ms = :seen",
            condition=_HEAD_EXISTS,
            values={":offset": number(offset), ":seen": number(seen_ms)},
        )
        if not self._client.update_if(self._table, noting):
            raise unknown_partition(key)

    def delete_page(self, key: PartitionKey, end_offset: Offset) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=page_item_key(key, end_offset))

    def mark_stored(self, key: PartitionKey, marks: Mapping[LocatedRef, int]) -> int:
        return RefMarker(self._client, self._table, self, key).mark(marks)


def _after_append(done: Applied, ref: Ref) -> HeadAppend:
    """What an append of `ref` has made of the old head, which DynamoDB returns: only that one tells of waiters."""
    old = parse_head(done.attributes)
    head = appended(without_waiter(old), ref)
    return HeadAppend(is_appended=True, head=head, took_waiter=old.waiter_ms is not None)


def _append_values(ref: Ref, unconfirmed_zones: int) -> Item:
    return {
        ":span": number(ref.offset_span),
        ":refs": {"L": [{"B": encode_ref(ref)}]},
        ":unconfirmed": number(unconfirmed_zones),
        **PUSH_WAITER_TAKEN,
    }
