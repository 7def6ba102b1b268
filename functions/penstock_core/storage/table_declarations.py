"""The three tables, as they are deployed and as they are in memory. keys.py has their items."""

from collections.abc import Mapping
from dataclasses import dataclass

PARTITION_KEY, SORT_KEY = "pk", "sk"  # both are texts


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDeclaration:
    """A table with `PARTITION_KEY` and `SORT_KEY`.

    DynamoDB removes an item some time after the second that its `ttl_attribute` names. A stream has both images of
    each change.
    """

    ttl_attribute: str | None = None
    is_streamed: bool = False


TTL_ATTRIBUTE = "expires_at_s"
TOPICS = TableDeclaration()
LOG = TableDeclaration(ttl_attribute=TTL_ATTRIBUTE, is_streamed=True)
GROUPS = TableDeclaration(ttl_attribute=TTL_ATTRIBUTE)
TABLES: Mapping[str, TableDeclaration] = {"topics": TOPICS, "log": LOG, "groups": GROUPS}
