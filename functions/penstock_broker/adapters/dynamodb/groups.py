"""GroupStore on the groups table: leases, one item each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from penstock_broker.adapters.dynamodb.client import DynamoDbClient, condition_failed
from penstock_core.group_items import (
    commit_update,
    committed_of,
    parse_lease,
    reset_update,
    take_update,
    unchanged_lease,
)
from penstock_core.ids import GroupName, MemberName
from penstock_core.items import CommittedOffset, Item, lease_item_key
from penstock_core.keys import LEASE_PREFIX, PartitionKey
from penstock_core.lease import Lease, Tenure, refusal
from penstock_core.sessions import concurrent_update

_BATCH_GET_MAX = 100


class DynamoDbGroupStore:
    """GroupStore."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def commit(self, group: GroupName, committed: CommittedOffset, tenure: Tenure | None, may_go_back: bool) -> None:
        update = commit_update(group, committed, tenure, may_go_back=may_go_back)
        try:
            self._client.call(
                "update_item",
                # A repeat that comes late could move the offset back, or be refused where the first was not.
                is_repeatable=False,
                TableName=self._table,
                **update.arguments(),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            item = error.response.get("Item")
            stored = parse_lease(item) if item else None
            why = refusal(stored, committed.partition, committed.offset, tenure, may_go_back=may_go_back)
            raise (why or concurrent_update(f"the lease on partition {committed.partition}")) from error

    def committed(self, group: GroupName) -> Sequence[CommittedOffset]:
        found = map(committed_of, self.leases(group))
        return [committed for committed in found if committed is not None]

    def leases(self, group: GroupName) -> Sequence[Lease]:
        return [*map(parse_lease, self._query(group))]

    def find_leases(self, group: GroupName, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Lease]:
        found: dict[PartitionKey, Lease] = {}
        for start in range(0, len(partitions), _BATCH_GET_MAX):
            keys = [lease_item_key(group, key) for key in partitions[start : start + _BATCH_GET_MAX]]
            for answer in self._client.batch_get({self._table: {"Keys": keys, "ConsistentRead": True}}):
                for lease in map(parse_lease, answer["Responses"].get(self._table, ())):
                    found[lease.partition] = lease
        return found

    def take_lease(self, group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> Lease:
        # A repeat would be refused by its own first, which nobody would then know of.
        update = take_update(group, seen, owner, epoch)
        answer = self._updated(group, seen, is_repeatable=False, **update.arguments(), ReturnValues="ALL_NEW")
        return parse_lease(answer["Attributes"])

    def reset_lease(self, group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> None:
        self._updated(group, seen, is_repeatable=False, **reset_update(group, seen, committed, epoch).arguments())

    def delete_lease(self, group: GroupName, seen: Lease) -> bool:
        condition, values = unchanged_lease(seen)
        try:
            self._client.call(
                "delete_item",
                is_repeatable=True,
                TableName=self._table,
                Key=lease_item_key(group, seen.partition),
                ConditionExpression=condition,
                **({"ExpressionAttributeValues": values} if values else {}),
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            return False
        return True

    def _updated(self, group: GroupName, seen: Lease, **arguments: Any) -> Any:
        try:
            return self._client.call("update_item", TableName=self._table, **arguments)
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise concurrent_update(f"the lease on partition {seen.partition} of group {group}") from error

    def _query(self, group: GroupName) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :group AND begins_with(sk, :lease)",
            ExpressionAttributeValues={":group": {"S": group}, ":lease": {"S": LEASE_PREFIX}},
        ):
            yield from items
