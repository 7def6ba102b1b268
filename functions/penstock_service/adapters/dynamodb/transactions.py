"""TransactionStore on the log table. A commit writes heads there, and leases and share items in the groups table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import refusal
from penstock_core.ids import Nonce, PartitionKey, TransactionalId
from penstock_core.log.index import partition_closed, unknown_partition
from penstock_core.log.ref import Ref, encode_ref, span
from penstock_core.log.timer import timer_exists
from penstock_core.outcomes import errors_of_a_late_attempt
from penstock_core.storage.groups.lease_item import commit_update, lease_item_key, parse_lease
from penstock_core.storage.head_item import CLOSED, head_key
from penstock_core.storage.head_updates import IS_OPEN, PUSH_WAITER_TAKEN, TAKE_PUSH_WAITER
from penstock_core.storage.item import ConditionalPut, Item, number
from penstock_core.storage.keys import transactional_key
from penstock_core.storage.push.delivery_item import delivery_write
from penstock_core.storage.share.share_state_item import share_update
from penstock_core.storage.timer_item import timer_put
from penstock_core.storage.transaction_items import (
    StagedRef,
    parse_stage,
    parse_state,
    stage_item,
    stage_prefix,
    state_key,
)
from penstock_core.transaction import (
    DeliveryCommit,
    Move,
    MoveOutcome,
    OffsetCommit,
    ShareCommit,
    Transaction,
    TransactionalProducer,
    TransactionState,
    lock_lost,
)
from penstock_service.adapters.dynamodb.client import Applied, Cancelled, DynamoDbClient, Refused

if TYPE_CHECKING:
    from penstock_core.schedules.schedule import ScheduleRun


class DynamoDbTransactionStore:
    """TransactionStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, log_table: str, groups_table: str) -> None:
        self._client = client
        self._log_table = log_table
        self._groups_table = groups_table

    def get(self, transactional_id: TransactionalId) -> TransactionState | None:
        item = self._client.get(self._log_table, state_key(transactional_id))
        return None if item is None else parse_state(item)

    def begin_epoch(
        self, transactional_id: TransactionalId, old: TransactionState | None, new: TransactionState
    ) -> TransactionState:
        assert new.expires_at_s is not None, "only items of earlier versions have no end"
        condition = "attribute_not_exists(pk)"
        values = {
            ":producer": number(new.producer_id),
            ":epoch": number(new.epoch),
            ":number": number(new.number),
            ":expires": number(new.expires_at_s),
            ":segments": {"B": b"".join(new.segments)},
            ":begins": {"B": b"".join(new.begins)},
            ":principal": {"S": new.principal},
        }
        if old is not None:
            condition = "producer_id = :old_producer AND epoch = :old_epoch"
            values |= {":old_producer": number(old.producer_id), ":old_epoch": number(old.epoch)}
        done = self._client.conditional(
            "update_item",
            is_repeatable=False,  # the first attempt would refuse a repeat
            TableName=self._log_table,
            Key=state_key(transactional_id),
            UpdateExpression="SET producer_id = :producer, epoch = :epoch, begin_nonces = :begins, "
            "principal = :principal, expires_at_s = :expires, "
            "transaction_number = if_not_exists(transaction_number, :number), "
            "segment_ids = if_not_exists(segment_ids, :segments)",
            ConditionExpression=condition,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
        )
        if isinstance(done, Refused):
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE,
                f"another instance of producer {transactional_id!r} has begun at the same time: try again",
            )
        return parse_state(done.attributes)

    def release(self, transactional_id: TransactionalId) -> bool:
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._log_table,
            Key=state_key(transactional_id),
            UpdateExpression="SET principal = :nobody",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeValues={":nobody": {"S": ""}},
        )
        return isinstance(done, Applied)

    def renew(self, producer: TransactionalProducer, expires_at_s: int) -> bool:
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._log_table,
            Key=state_key(producer.transactional_id),
            UpdateExpression="SET expires_at_s = :expires",
            ConditionExpression="epoch = :epoch",
            ExpressionAttributeValues={":expires": number(expires_at_s), ":epoch": number(producer.epoch)},
        )
        return isinstance(done, Applied)

    def put_stage(
        self,
        producer: TransactionalProducer,
        transaction: int,
        nonce: Nonce,
        stage: int,
        refs: Sequence[StagedRef],
        now_ms: int,
    ) -> None:
        item = stage_item(producer, transaction, nonce, stage, refs, now_ms)
        self._client.call("put_item", is_repeatable=True, TableName=self._log_table, Item=item)

    def stages(self, producer: TransactionalProducer, transaction: int, nonce: Nonce) -> Sequence[Sequence[StagedRef]]:
        return [*map(parse_stage, self._query_stages(producer, stage_prefix(producer.epoch, transaction, nonce)))]

    def commit(self, transaction: Transaction) -> bool:
        updates = [
            self._state_update(transaction),
            *self._head_updates(transaction.refs, transaction.unconfirmed),
            *(self._lease_update(each) for each in transaction.offsets),
            *(self._share_update(each) for each in transaction.shares),
        ]
        puts = [{"Put": {"TableName": self._log_table, **timer_put(each).arguments()}} for each in transaction.timers]
        cancelled = self._client.transact([*({"Update": each} for each in updates), *puts])
        if cancelled is None:
            return True
        if cancelled.is_refused(0):
            return False
        with errors_of_a_late_attempt(maybe_applied=cancelled.maybe_applied):
            raise self._why(transaction, cancelled)

    def move(self, move: Move) -> MoveOutcome:
        actions = [
            *({"Update": self._share_update(each)} for each in move.shares),
            *map(self._delivery_write, move.deliveries),
            *map(self._run_update, move.runs),
        ]
        expecting = len(actions)
        actions += ({"Update": each} for each in self._head_updates(move.refs, move.unconfirmed))
        cancelled = self._client.transact(actions)
        if cancelled is None:
            return MoveOutcome(is_applied=True)
        if any(cancelled.is_refused(action) for action in range(expecting)):
            return MoveOutcome(is_applied=False, maybe_applied=cancelled.maybe_applied)
        refused = next(key for action, key in enumerate(move.refs, expecting) if cancelled.is_refused(action))
        with errors_of_a_late_attempt(maybe_applied=cancelled.maybe_applied):
            raise self._why_no_append(refused)

    def _why_no_append(self, key: PartitionKey) -> PenstockError:
        """The error for a head that has refused refs. One read."""
        there = self._client.get(self._log_table, head_key(key))
        return partition_closed(key) if CLOSED in (there or {}) else unknown_partition(key)

    def _why(self, transaction: Transaction, cancelled: Cancelled) -> PenstockError:
        """The error for the first refused action behind the state's. One read if that is an offset or a head."""
        for action, key in enumerate(transaction.refs, start=1):
            if cancelled.is_refused(action):
                return self._why_no_append(key)
        for action, each in enumerate(transaction.offsets, start=1 + len(transaction.refs)):
            key = each.committed.partition
            if cancelled.is_refused(action):
                item = self._client.get(self._groups_table, lease_item_key(each.group, key))
                lease = None if item is None else parse_lease(item)
                offset = each.committed.offset
                why = refusal(lease, key, offset, each.token, may_go_back=True, may_create=each.may_create)
                if why is not None:
                    return why
        first_share = 1 + len(transaction.refs) + len(transaction.offsets)
        for action, share in enumerate(transaction.shares, start=first_share):
            if cancelled.is_refused(action):
                return lock_lost(share.key)
        for action, timer in enumerate(transaction.timers, start=first_share + len(transaction.shares)):
            if cancelled.is_refused(action):
                return timer_exists(timer)
        return PenstockError(
            ErrorCode.THROTTLED,
            "another writer changed the lease of an offset meanwhile: try again",
        )

    def _state_update(self, transaction: Transaction) -> dict[str, Any]:
        return {
            "TableName": self._log_table,
            "Key": state_key(transaction.producer.transactional_id),
            "UpdateExpression": "SET transaction_number = :number, segment_ids = :segments, "
            "transaction_nonce = :nonce, expires_at_s = :expires",
            "ConditionExpression": "epoch = :epoch AND transaction_number = :before "
            "AND (attribute_not_exists(principal) OR principal IN (:nobody, :principal))",
            "ExpressionAttributeValues": {
                ":number": number(transaction.number),
                ":before": number(transaction.number - 1),
                ":epoch": number(transaction.producer.epoch),
                ":expires": number(transaction.expires_at_s),
                ":segments": {"B": b"".join(transaction.segments)},
                ":nonce": {"B": transaction.nonce},
                ":nobody": {"S": ""},
                ":principal": {"S": transaction.producer.principal},
            },
        }

    def _share_update(self, each: ShareCommit) -> dict[str, Any]:
        return {"TableName": self._groups_table, **share_update(each.key, each.update).arguments()}

    def _delivery_write(self, each: DeliveryCommit) -> dict[str, Any]:
        write = delivery_write(each.key, each.state)
        kind = "Put" if isinstance(write, ConditionalPut) else "Update"
        return {kind: {"TableName": self._groups_table, **write.arguments()}}

    def _run_update(self, each: "ScheduleRun") -> dict[str, Any]:
        from penstock_core.storage.schedule_item import schedule_run  # of the one function that runs schedules

        return {"Update": {"TableName": self._groups_table, **schedule_run(each).arguments()}}

    def _head_updates(
        self, refs: Mapping[PartitionKey, Sequence[Ref]], unconfirmed: Mapping[PartitionKey, int]
    ) -> Iterator[dict[str, Any]]:
        for key, appended in refs.items():
            yield self._head_update(key, appended, unconfirmed.get(key, 0))

    def _head_update(self, key: PartitionKey, refs: Sequence[Ref], unconfirmed: int) -> dict[str, Any]:
        return {
            "TableName": self._log_table,
            "Key": head_key(key),
            "UpdateExpression": "SET next_offset = next_offset + :span, tail = list_append(tail, :refs), "
            f"under_replicated = :unconfirmed, {TAKE_PUSH_WAITER}",
            "ConditionExpression": IS_OPEN,
            "ExpressionAttributeValues": {
                ":span": number(span(refs)),
                ":refs": {"L": [{"B": encode_ref(ref)} for ref in refs]},
                ":unconfirmed": number(unconfirmed),
                **PUSH_WAITER_TAKEN,
            },
        }

    def _lease_update(self, each: OffsetCommit) -> dict[str, Any]:
        update = commit_update(each.group, each.committed, each.token, may_go_back=True, may_create=each.may_create)
        return {"TableName": self._groups_table, **update.arguments()}

    def _query_stages(self, producer: TransactionalProducer, prefix: str) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._log_table,
            KeyConditionExpression="pk = :producer AND begins_with(sk, :transaction)",
            ExpressionAttributeValues={
                ":producer": {"S": transactional_key(producer.transactional_id)},
                ":transaction": {"S": prefix},
            },
        ):
            yield from items
