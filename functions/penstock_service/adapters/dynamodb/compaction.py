"""CompactionStore on the log table. A swap, or a move, is one TransactWriteItems over items of one partition.

JobCursors and AuditStore in the topics table.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock_core.audit.audit_entry import AuditEntry, AuditId, AuditResult
from penstock_core.compaction.merging import CompactionState, Swap, find_sequence
from penstock_core.compaction.tail_move import TailMove
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.limits import MERGED_QUERIES_MAX
from penstock_core.log.index import Page
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.storage.audit_item import audit_item, audit_item_key, parse_audit_item
from penstock_core.storage.compaction_item import (
    RETIRED_PREFIX,
    SEQUENCES_PREFIX,
    STATE_KEPT_MS,
    cleaned_value,
    compaction_key,
    cursor_item,
    cursor_key,
    parse_compaction,
    parse_cursor,
    parse_retired,
    parse_sequences,
    retired_item,
    sequences_item,
)
from penstock_core.storage.head_item import head_key
from penstock_core.storage.head_updates import tail_moving
from penstock_core.storage.item import Item, number
from penstock_core.storage.keys import AUDIT
from penstock_core.storage.page_item import MergeMark, merge_mark_item, page_item
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused


class DynamoDbCompactionStore:
    """CompactionStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def acquire(self, key: PartitionKey, now_ms: int, deadline_ms: int) -> CompactionState | None:
        done = self._update(
            key,
            "SET epoch = if_not_exists(epoch, :none) + :one, deadline_ms = :deadline, expires_at_s = :expires",
            "attribute_not_exists(deadline_ms) OR deadline_ms < :now",
            {":none": number(0), ":one": number(1), ":now": number(now_ms)},
            deadline_ms,
        )
        return parse_compaction(done.attributes) if isinstance(done, Applied) else None

    def save(self, key: PartitionKey, state: CompactionState) -> bool:
        done = self._update(
            key,
            "SET cleaned = :cleaned, deadline_ms = :deadline, expires_at_s = :expires",
            "epoch = :epoch",
            {":cleaned": cleaned_value(state.cleaned), ":epoch": number(state.epoch)},
            state.deadline_ms,
        )
        return isinstance(done, Applied)

    def swap(self, key: PartitionKey, swap: Swap) -> bool:
        return self._client.transact([*self._actions(key, swap)]) is None

    def move_tail(self, key: PartitionKey, move: TailMove) -> bool:
        update = {"TableName": self._table, **tail_moving(key, move).arguments()}
        put = {"TableName": self._table, "Item": retired_item(key, move.moved_ms, move.end_offset, move.retired)}
        return self._client.transact([{"Update": update}, {"Put": put}]) is None

    def retired(self, key: PartitionKey, since_ms: int) -> Sequence[SegmentId]:
        first, last = f"{RETIRED_PREFIX}{max(0, since_ms):015d}", f"{RETIRED_PREFIX}~"
        return [each for items in self._query(key, first, last, True) for item in items for each in parse_retired(item)]

    def find_merged(self, key: PartitionKey, sequence: ProducerSequence) -> Offset | None:
        parts = self._query(key, SEQUENCES_PREFIX, f"{SEQUENCES_PREFIX}~", False)
        for _, items in zip(range(MERGED_QUERIES_MAX), parts, strict=False):
            for item in items:
                offset = find_sequence(parse_sequences(item), sequence)
                if offset is not None:
                    return offset
        return None

    def _actions(self, key: PartitionKey, swap: Swap) -> Iterator[dict[str, Any]]:
        old = {page.end_offset: page for page in swap.old}
        new = {page.end_offset: page for page in swap.new}
        marks = {
            end: merge_mark_item(key, end, MergeMark(marks_before=at, marks_behind=len(row) - 1 - at), swap.swapped_ms)
            for row in swap.merged_ends
            for at, end in enumerate(row)
        }
        for end_offset, page in old.items():
            item = page_item(key, new[end_offset]) if end_offset in new else marks[end_offset]
            yield {"Put": {"TableName": self._table, "Item": item, **_unchanged(key, page)}}
        for end_offset, page in new.items():
            if end_offset not in old:
                condition = {"ConditionExpression": "attribute_not_exists(pk) OR attribute_exists(marks_before)"}
                yield {"Put": {"TableName": self._table, "Item": page_item(key, page), **condition}}
        yield {
            "Update": {
                "TableName": self._table,
                "Key": compaction_key(key),
                "UpdateExpression": "SET deadline_ms = :deadline",
                "ConditionExpression": "epoch = :epoch",
                "ExpressionAttributeValues": {":epoch": number(swap.epoch), ":deadline": number(swap.deadline_ms)},
            }
        }
        yield {
            "ConditionCheck": {
                "TableName": self._table,
                "Key": head_key(key),
                "ConditionExpression": "tail_base >= :end",
                "ExpressionAttributeValues": {":end": number(swap.old[-1].end_offset)},
            }
        }
        end_offset = swap.old[-1].end_offset
        item = retired_item(key, swap.swapped_ms, end_offset, swap.retired)
        yield {"Put": {"TableName": self._table, "Item": item}}
        if swap.sequences:
            item = sequences_item(key, swap.swapped_ms, end_offset, swap.sequences)
            yield {"Put": {"TableName": self._table, "Item": item}}

    def _update(
        self, key: PartitionKey, update: str, condition: str, values: Item, deadline_ms: int
    ) -> Applied | Refused:
        deadline: Item = {
            ":deadline": number(deadline_ms),
            ":expires": number((deadline_ms + STATE_KEPT_MS) // 1_000),
        }
        return self._client.conditional(
            "update_item",
            is_repeatable=False,
            TableName=self._table,
            Key=compaction_key(key),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeValues=values | deadline,
            ReturnValues="ALL_NEW",
        )

    def _query(self, key: PartitionKey, first: str, last: str, is_ascending: bool) -> Iterator[Sequence[Item]]:
        yield from self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :partition AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":partition": {"S": str(key)},
                ":first": {"S": first},
                ":last": {"S": last},
            },
            ScanIndexForward=is_ascending,
        )


def _unchanged(key: PartitionKey, page: Page) -> dict[str, Any]:
    stored = page_item(key, page)
    return {
        "ConditionExpression": "base_offset = :base AND refs = :refs",
        "ExpressionAttributeValues": {":base": stored["base_offset"], ":refs": stored["refs"]},
    }


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


class DynamoDbAuditStore:
    """AuditStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def put(self, entry: AuditEntry) -> None:
        # The note that a change begins is sent once: a first attempt that lands late would replace the note of its end.
        is_repeatable = entry.result is not AuditResult.BEGUN
        self._client.call("put_item", is_repeatable=is_repeatable, TableName=self._table, Item=audit_item(entry))

    def entries(self, limit: int) -> Sequence[AuditEntry]:
        found = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            ConsistentRead=True,
            Limit=limit,
            KeyConditionExpression="pk = :audit",
            ExpressionAttributeValues={":audit": {"S": AUDIT}},
        )
        return [*map(parse_audit_item, found["Items"])]

    def forget(self, audit_id: AuditId) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=audit_item_key(audit_id))
