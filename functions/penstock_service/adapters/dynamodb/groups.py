"""GroupStore on the groups table: leases, one item each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, MayGoBack, refusal
from penstock_core.groups.sessions import concurrent_update
from penstock_core.ids import GroupName, MemberName, PartitionKey, TopicId
from penstock_core.storage.groups.lease_item import (
    LEASE_PREFIX,
    commit_update,
    lease_item_key,
    parse_lease,
    release_update,
    reset_update,
    take_update,
    unchanged_lease,
)
from penstock_core.storage.item import Item
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused

_NEXT, _LAST = " ", "~"  # they sort below and above every character of a key's parts


class DynamoDbGroupStore:
    """GroupStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def commit(
        self,
        group: GroupName,
        committed: CommittedOffset,
        token: LeaseToken | None,
        may_go_back: MayGoBack,
        may_create: bool,
    ) -> None:
        update = commit_update(group, committed, token, may_go_back=may_go_back, may_create=may_create)
        done = self._client.conditional(
            "update_item",
            is_repeatable=False,  # a late repeat could move the offset back, or be refused where the first was not
            TableName=self._table,
            **update.arguments(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Refused):
            stored = parse_lease(done.item) if done.item else None
            key, offset = committed.partition, committed.offset
            why = refusal(stored, key, offset, token, may_go_back=may_go_back, may_create=may_create)
            raise why or concurrent_update(f"the lease on partition {key}")

    def leases(self, group: GroupName) -> Sequence[Lease]:
        return [*map(parse_lease, self._query(group))]

    def lease_page(
        self, group: GroupName, topic_id: TopicId | None, after: str, limit: int
    ) -> tuple[Sequence[Lease], bool]:
        prefix = LEASE_PREFIX if topic_id is None else f"{LEASE_PREFIX}{topic_id}#"
        first, last = max(prefix, f"{LEASE_PREFIX}{after}{_NEXT}"), f"{prefix}{_LAST}"
        if first > last:  # DynamoDB refuses such a range
            return [], False
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :group AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":group": {"S": group},
                ":first": {"S": first},
                ":last": {"S": last},
            },
            Limit=limit,
            ConsistentRead=True,
        )
        return [*map(parse_lease, answer["Items"])], "LastEvaluatedKey" in answer

    def find_leases(self, group: GroupName, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Lease]:
        items = self._client.batch_get(self._table, [lease_item_key(group, key) for key in partitions])
        return {lease.partition: lease for lease in map(parse_lease, items)}

    def take_lease(self, group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> Lease:
        update = take_update(group, seen, owner, epoch)
        return parse_lease(self._updated(group, seen, **update.arguments(), ReturnValues="ALL_NEW").attributes)

    def reset_lease(self, group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> None:
        self._updated(group, seen, **reset_update(group, seen, committed, epoch).arguments())

    def release_lease(self, group: GroupName, seen: Lease, epoch: int) -> None:
        self._updated(group, seen, **release_update(group, seen, epoch).arguments())

    def delete_lease(self, group: GroupName, seen: Lease) -> bool:
        condition, values = unchanged_lease(seen)
        deleted = self._client.conditional(
            "delete_item",
            is_repeatable=True,
            TableName=self._table,
            Key=lease_item_key(group, seen.partition),
            ConditionExpression=condition,
            **({"ExpressionAttributeValues": values} if values else {}),
        )
        return isinstance(deleted, Applied)

    def _updated(self, group: GroupName, seen: Lease, **arguments: Any) -> Applied:
        # Never repeated: the first attempt would refuse the repeat, and no caller would learn that it was applied.
        done = self._client.conditional("update_item", is_repeatable=False, TableName=self._table, **arguments)
        if isinstance(done, Refused):
            raise concurrent_update(f"the lease on partition {seen.partition} of group {group}")
        return done

    def _query(self, group: GroupName) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :group AND begins_with(sk, :lease)",
            ExpressionAttributeValues={":group": {"S": group}, ":lease": {"S": LEASE_PREFIX}},
        ):
            yield from items
