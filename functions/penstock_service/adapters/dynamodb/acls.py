"""AclStore on the topics table: one item with all rules, and one with their revision."""

from penstock_core.acls.rule_set import EMPTY_BOOK, NO_REVISION, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.acls_item import acl_mark_key, acl_rules_key, acl_writes, parse_acl_mark, parse_acl_rules
from penstock_core.storage.item import ConditionalPut
from penstock_service.adapters.dynamodb.client import DynamoDbClient


class DynamoDbAclStore:
    """AclStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def revision(self) -> str:
        item = self._client.get(self._table, acl_mark_key())
        return NO_REVISION if item is None else parse_acl_mark(item)

    def get(self) -> RuleBook:
        item = self._client.get(self._table, acl_rules_key())
        return EMPTY_BOOK if item is None else parse_acl_rules(item)

    def change(self, seen: str, book: RuleBook) -> None:
        actions = [
            {
                "Put" if isinstance(write, ConditionalPut) else "Update": {
                    "TableName": self._table,
                    **write.arguments(),
                }
            }
            for write in acl_writes(seen, book)
        ]
        cancelled = self._client.transact_once(actions, is_repeatable=False)
        if cancelled is not None and cancelled.is_any_refused:
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "another request changed the access rules: try again")
        if cancelled is not None:
            raise PenstockError(ErrorCode.THROTTLED, "another writer holds the access rules: try again")
