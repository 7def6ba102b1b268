"""The items of the access rules: one with all rules, and one that tells whether they have changed.

```
topics table   pk "#acls"   sk "rules"
revision   S   16 hexadecimal digits, new with each change: the condition of the next one
rules      B   zlib of JSON: [[principal, operation, resource, permission], …], sorted

topics table   pk "#acls"   sk "mark"
revision   S   that of the rules
```
One transaction writes both. So an instance reads the whole of one revision with one read, and learns by a read of 60
bytes whether that is still the newest.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import NO_REVISION, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import check_item
from penstock_core.limits import ACL_DECODED_BYTES_MAX, ACL_ITEM_BYTES_MAX
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, rewriting


def acl_rules_key() -> Item:
    """The key of the item with all rules."""
    return {"pk": {"S": keys.ACLS}, "sk": {"S": keys.ACL_RULES}}


def acl_mark_key() -> Item:
    """The key of the item with the revision alone."""
    return {"pk": {"S": keys.ACLS}, "sk": {"S": keys.ACL_MARK}}


def acl_rules_item(book: RuleBook) -> Item:
    """The item with all rules. Raises TOO_MANY_ACLS if they take more than `ACL_ITEM_BYTES_MAX`."""
    rows = sorted([*rule.to_json().values()] for rule in book.rules)
    packed = zlib.compress(json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode())
    if len(packed) > ACL_ITEM_BYTES_MAX:
        raise PenstockError(
            ErrorCode.TOO_MANY_ACLS,
            f"{len(rows)} rules take {len(packed)} bytes: {ACL_ITEM_BYTES_MAX} at most. Remove some, or name "
            "principals and resources by their beginning and a *",
            limit=ACL_ITEM_BYTES_MAX,
        )
    return {**acl_rules_key(), "revision": {"S": book.revision}, "rules": {"B": packed}}


def parse_acl_rules(item: Mapping[str, Any]) -> RuleBook:
    """The inverse of `acl_rules_item`.

    Raises UNSUPPORTED_FORMAT for what this release does not know. It must not pass over a rule, which may deny.
    """
    check_item("acls", item)
    try:
        rows = json.loads(_unpacked(bytes(item["rules"]["B"])))
        rules = frozenset(parse_rule(*row) for row in rows)
    except (ValueError, TypeError, zlib.error, PenstockError) as error:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT, f"this release cannot read the access rules ({error}): use a later one"
        ) from error
    return RuleBook(revision=item["revision"]["S"], rules=rules)


def parse_acl_mark(item: Mapping[str, Any]) -> str:
    """The revision of the rules. Raises UNSUPPORTED_FORMAT."""
    check_item("acls_mark", item)
    return str(item["revision"]["S"])


def acl_writes(seen: str, book: RuleBook) -> tuple[ConditionalPut | ConditionalUpdate, ...]:
    """Both items, for one transaction. The condition of each is that the stored revision is the one that was seen."""
    items = (acl_rules_item(book), {**acl_mark_key(), "revision": {"S": book.revision}})
    if seen == NO_REVISION:
        return tuple(ConditionalPut(item=item, condition="attribute_not_exists(pk)") for item in items)
    return tuple(rewriting(item, "revision = :seen", {":seen": {"S": seen}}) for item in items)


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(data, ACL_DECODED_BYTES_MAX)
    if unpacking.unconsumed_tail:
        raise ValueError(f"more than {ACL_DECODED_BYTES_MAX} bytes")
    return content
