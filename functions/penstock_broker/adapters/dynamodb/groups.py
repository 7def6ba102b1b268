"""GroupStore on the groups table."""

from collections.abc import Sequence

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_core.ids import GroupName
from penstock_core.items import CommittedOffset, lease_item_key, number, parse_committed
from penstock_core.keys import LEASE_PREFIX


class DynamoDbGroupStore:
    """GroupStore."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def commit(self, group: GroupName, committed: CommittedOffset) -> None:
        self._client.call(
            "update_item",
            # A repeat that comes late could move the offset back over a later commit.
            is_repeatable=False,
            TableName=self._table,
            Key=lease_item_key(group, committed.partition),
            UpdateExpression="SET committed_offset = :offset, metadata = :metadata, topic = :topic, "
            "committed_at_ms = :now",
            ExpressionAttributeValues={
                ":offset": number(committed.offset),
                ":metadata": {"S": committed.metadata},
                ":topic": {"S": committed.topic},
                ":now": number(committed.committed_at_ms),
            },
        )

    def committed(self, group: GroupName) -> Sequence[CommittedOffset]:
        found: list[CommittedOffset] = []
        start: dict[str, object] = {}
        while True:
            answer = self._client.call(
                "query",
                is_repeatable=True,
                TableName=self._table,
                KeyConditionExpression="pk = :group AND begins_with(sk, :lease)",
                ExpressionAttributeValues={":group": {"S": group}, ":lease": {"S": LEASE_PREFIX}},
                ConsistentRead=True,
                **start,
            )
            found += map(parse_committed, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return found
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
