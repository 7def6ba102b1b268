"""AuditStore in the topics table."""

from collections.abc import Sequence

from penstock_core.audit.audit_entry import AuditEntry, AuditId, AuditResult
from penstock_core.storage.audit_item import audit_item, audit_item_key, parse_audit_item
from penstock_core.storage.keys import AUDIT
from penstock_service.adapters.dynamodb.client import DynamoDbClient


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
