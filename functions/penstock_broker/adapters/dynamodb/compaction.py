"""CompactionStore on the log table. A swap is one TransactWriteItems over items of one partition."""

from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import ClientError

from penstock_broker.adapters.dynamodb.client import DynamoDbClient, condition_failed, error_code
from penstock_core.compaction import CompactionState, Swap, find_sequence
from penstock_core.compaction_items import (
    STATE_KEPT_MS,
    cleaned_value,
    compaction_key,
    parse_compaction,
    parse_retired,
    parse_sequences,
    retired_item,
    sequences_item,
)
from penstock_core.ids import Offset, SegmentId
from penstock_core.index import Page
from penstock_core.items import Item, head_key, number, page_item, page_item_key
from penstock_core.keys import RETIRED_PREFIX, SEQUENCES_PREFIX, PartitionKey
from penstock_core.producer_state import ProducerSequence

_REFUSED = "ConditionalCheckFailed"
_QUERIES_MAX = 8  # of 1 MB each: a produce waits for them


class DynamoDbCompactionStore:
    """CompactionStore."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def acquire(self, key: PartitionKey, now_ms: int, deadline_ms: int) -> CompactionState | None:
        answer = self._update(
            key,
            "SET epoch = if_not_exists(epoch, :none) + :one, deadline_ms = :deadline, expires_at_s = :expires",
            "attribute_not_exists(deadline_ms) OR deadline_ms < :now",
            {":none": number(0), ":one": number(1), ":now": number(now_ms)},
            deadline_ms,
        )
        return None if answer is None else parse_compaction(answer["Attributes"])

    def save(self, key: PartitionKey, state: CompactionState) -> bool:
        answer = self._update(
            key,
            "SET cleaned = :cleaned, deadline_ms = :deadline, expires_at_s = :expires",
            "epoch = :epoch",
            {":cleaned": cleaned_value(state.cleaned), ":epoch": number(state.epoch)},
            state.deadline_ms,
        )
        return answer is not None

    def swap(self, key: PartitionKey, swap: Swap) -> bool:
        try:
            self._client.transact([*self._actions(key, swap)])
        except ClientError as error:
            if error_code(error) != "TransactionCanceledException":
                raise
            if _REFUSED in {reason.get("Code") for reason in error.response["CancellationReasons"]}:
                return False
            raise
        return True

    def retired(self, key: PartitionKey, since_ms: int) -> Sequence[SegmentId]:
        first, last = f"{RETIRED_PREFIX}{max(0, since_ms):015d}", f"{RETIRED_PREFIX}~"
        return [each for items in self._query(key, first, last, True) for item in items for each in parse_retired(item)]

    def find_merged(self, key: PartitionKey, sequence: ProducerSequence) -> Offset | None:
        parts = self._query(key, SEQUENCES_PREFIX, f"{SEQUENCES_PREFIX}~", False)
        for _, items in zip(range(_QUERIES_MAX), parts, strict=False):
            for item in items:
                offset = find_sequence(parse_sequences(item), sequence)
                if offset is not None:
                    return offset
        return None

    def _actions(self, key: PartitionKey, swap: Swap) -> Iterator[dict[str, Any]]:
        old = {page.end_offset: page for page in swap.old}
        new = {page.end_offset: page for page in swap.new}
        for end_offset, page in old.items():
            condition = _unchanged(key, page)
            if end_offset in new:
                yield {"Put": {"TableName": self._table, "Item": page_item(key, new[end_offset]), **condition}}
            else:
                yield {"Delete": {"TableName": self._table, "Key": page_item_key(key, end_offset), **condition}}
        for end_offset, page in new.items():
            if end_offset not in old:
                condition = {"ConditionExpression": "attribute_not_exists(pk)"}
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
                "ConditionExpression": "attribute_exists(next_offset)",
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
    ) -> dict[str, Any] | None:
        """None if the condition does not hold."""
        deadline: Item = {
            ":deadline": number(deadline_ms),
            ":expires": number((deadline_ms + STATE_KEPT_MS) // 1_000),
        }
        try:
            answer: dict[str, Any] = self._client.call(
                "update_item",
                is_repeatable=False,
                TableName=self._table,
                Key=compaction_key(key),
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeValues=values | deadline,
                ReturnValues="ALL_NEW",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            return None
        return answer

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
