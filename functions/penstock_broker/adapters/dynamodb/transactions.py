"""TransactionStore on the log table. A commit writes heads there and leases in the groups table, at once."""

from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import ClientError

from penstock_broker.adapters.dynamodb.client import DynamoDbClient, condition_failed, error_code
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group_items import commit_update, parse_lease
from penstock_core.ids import TransactionalId
from penstock_core.index import unknown_partition
from penstock_core.items import Item, head_key, lease_item_key, number
from penstock_core.keys import PartitionKey, stage_prefix, transactional_key
from penstock_core.lease import refusal
from penstock_core.ref import encode_ref, span
from penstock_core.transaction import OffsetCommit, Transaction, TransactionalProducer, TransactionState
from penstock_core.transaction_items import (
    StagedRef,
    parse_stage,
    parse_state,
    stage_item,
    state_key,
)

_REFUSED = "ConditionalCheckFailed"


class DynamoDbTransactionStore:
    """TransactionStore."""

    def __init__(self, client: DynamoDbClient, log_table: str, groups_table: str) -> None:
        self._client = client
        self._log_table = log_table
        self._groups_table = groups_table

    def get(self, transactional_id: TransactionalId) -> TransactionState | None:
        item = self._get(self._log_table, state_key(transactional_id))
        return None if item is None else parse_state(item)

    def begin_epoch(
        self, transactional_id: TransactionalId, old: TransactionState | None, new: TransactionState
    ) -> TransactionState:
        condition = "attribute_not_exists(pk)"
        values = {
            ":producer": number(new.producer_id),
            ":epoch": number(new.epoch),
            ":number": number(new.number),
            ":segments": {"B": b"".join(new.segments)},
        }
        if old is not None:
            condition = "producer_id = :old_producer AND epoch = :old_epoch"
            values |= {":old_producer": number(old.producer_id), ":old_epoch": number(old.epoch)}
        try:
            answer = self._client.call(
                "update_item",
                is_repeatable=False,  # a repeat would be refused by its own first
                TableName=self._log_table,
                Key=state_key(transactional_id),
                UpdateExpression="SET producer_id = :producer, epoch = :epoch, "
                "transaction_number = if_not_exists(transaction_number, :number), "
                "segment_ids = if_not_exists(segment_ids, :segments)",
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE,
                f"another instance of producer {transactional_id!r} has begun at the same time: try again",
            ) from error
        return parse_state(answer["Attributes"])

    def put_stage(
        self, producer: TransactionalProducer, transaction: int, stage: int, refs: Sequence[StagedRef], now_ms: int
    ) -> None:
        item = stage_item(producer, transaction, stage, refs, now_ms)
        self._client.call("put_item", is_repeatable=True, TableName=self._log_table, Item=item)

    def stages(self, producer: TransactionalProducer, transaction: int) -> Sequence[Sequence[StagedRef]]:
        return [*map(parse_stage, self._query_stages(producer, transaction))]

    def commit(self, transaction: Transaction) -> bool:
        updates = [
            self._state_update(transaction),
            *(self._head_update(key, transaction) for key in transaction.refs),
            *(self._lease_update(each) for each in transaction.offsets),
        ]
        try:
            self._client.transact([{"Update": each} for each in updates])
        except ClientError as error:
            if error_code(error) != "TransactionCanceledException":
                raise
            codes = [reason.get("Code") for reason in error.response["CancellationReasons"]]
            if codes[0] == _REFUSED:
                return False
            raise self._why(transaction, codes[1:]) from error
        return True

    def _why(self, transaction: Transaction, codes: Sequence[str | None]) -> PenstockError:
        """Of several refusals the first is told."""
        keys = [*transaction.refs]
        for key, code in zip(keys, codes, strict=False):
            if code == _REFUSED:
                return unknown_partition(key)
        for each, code in zip(transaction.offsets, codes[len(keys) :], strict=True):
            key = each.committed.partition
            if code == _REFUSED:
                item = self._get(self._groups_table, lease_item_key(each.group, key))
                lease = None if item is None else parse_lease(item)
                why = refusal(lease, key, each.committed.offset, each.tenure, may_go_back=True)
                if why is not None:
                    return why
        return PenstockError(
            ErrorCode.THROTTLED,
            "an offset's lease was changed by somebody else meanwhile: nothing was changed, try again",
        )

    def _state_update(self, transaction: Transaction) -> dict[str, Any]:
        return {
            "TableName": self._log_table,
            "Key": state_key(transaction.producer.transactional_id),
            "UpdateExpression": "SET transaction_number = :number, segment_ids = :segments",
            "ConditionExpression": "epoch = :epoch AND transaction_number = :before",
            "ExpressionAttributeValues": {
                ":number": number(transaction.number),
                ":before": number(transaction.number - 1),
                ":epoch": number(transaction.producer.epoch),
                ":segments": {"B": b"".join(transaction.segments)},
            },
        }

    def _head_update(self, key: PartitionKey, transaction: Transaction) -> dict[str, Any]:
        refs = transaction.refs[key]
        return {
            "TableName": self._log_table,
            "Key": head_key(key),
            "UpdateExpression": "SET next_offset = next_offset + :span, tail = list_append(tail, :refs), "
            "under_replicated = :unconfirmed",
            "ConditionExpression": "attribute_exists(next_offset)",
            "ExpressionAttributeValues": {
                ":span": number(span(refs)),
                ":refs": {"L": [{"B": encode_ref(ref)} for ref in refs]},
                ":unconfirmed": number(transaction.unconfirmed.get(key, 0)),
            },
        }

    def _lease_update(self, each: OffsetCommit) -> dict[str, Any]:
        update = commit_update(each.group, each.committed, each.tenure, may_go_back=True)
        return {"TableName": self._groups_table, **update.arguments()}

    def _get(self, table: str, key: Item) -> Item | None:
        answer = self._client.call("get_item", is_repeatable=True, TableName=table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def _query_stages(self, producer: TransactionalProducer, transaction: int) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._log_table,
            KeyConditionExpression="pk = :producer AND begins_with(sk, :transaction)",
            ExpressionAttributeValues={
                ":producer": {"S": transactional_key(producer.transactional_id)},
                ":transaction": {"S": stage_prefix(producer.epoch, transaction)},
            },
        ):
            yield from items
