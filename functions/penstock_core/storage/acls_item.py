"""The items of the access rules: all rules, whether they have changed, and which templates declare them.

```
topics table   pk "#acls"   sk "rules"
revision   S   16 hexadecimal digits, new with each change: the condition of the next one
rules      B   zlib of JSON: [[principal, operation, resource, permission], …], sorted

topics table   pk "#acls"   sk "mark"
revision   S   that of the rules

topics table   pk "#acls"   sk "owners"
owners     B   zlib of JSON: {owner: [[principal, operation, resource, permission], …]}, sorted
```
One transaction writes rules and mark. So an instance reads the whole of one revision with one read, and learns by a
read of 60 bytes whether that is still the newest. The transaction writes the owners where they have changed: so who
reads rules first and then owners, and writes under the revision of the rules, has read what belongs together. A release
that knows no owners leaves them. Then they may name rules that are gone, and that means nothing.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from penstock_core.acls.rule import Rule, parse_rule
from penstock_core.acls.rule_set import NO_REVISION, Owners, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import FORMAT_ATTRIBUTE, check_item
from penstock_core.limits import ACL_DECODED_BYTES_MAX, ACL_ITEM_BYTES_MAX
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, rewriting


def acl_rules_key() -> Item:
    """The key of the item with all rules."""
    return {"pk": {"S": keys.ACLS}, "sk": {"S": keys.ACL_RULES}}


def acl_mark_key() -> Item:
    """The key of the item with the revision alone."""
    return {"pk": {"S": keys.ACLS}, "sk": {"S": keys.ACL_MARK}}


def acl_owners_key() -> Item:
    """The key of the item with the owners."""
    return {"pk": {"S": keys.ACLS}, "sk": {"S": keys.ACL_OWNERS}}


def acl_rules_item(book: RuleBook) -> Item:
    """The item with all rules.

    Raises TOO_MANY_ACLS if they take more than `ACL_DECODED_BYTES_MAX` as text, or `ACL_ITEM_BYTES_MAX` compressed.
    """
    what = f"{len(book.rules)} rules"
    packed = _packed(
        _rows(book.rules), what, "Remove some, or name principals and resources by their beginning and a *"
    )
    return {**acl_rules_key(), "revision": {"S": book.revision}, "rules": {"B": packed}}


def acl_owners_item(owners: Owners) -> Item:
    """The item with the owners. Raises TOO_MANY_ACLS as `acl_rules_item`."""
    names = sorted({name for each in owners.values() for name in each})
    of = {name: _rows(rule for rule, each in owners.items() if name in each) for name in names}
    what = f"the rules that {len(names)} resources of templates declare"
    packed = _packed(
        of, what, "Declare a rule in one stack, or add it by `penstock acls add`, instead of in each stack"
    )
    return {**acl_owners_key(), "owners": {"B": packed}}


def parse_acl_owners(item: Mapping[str, Any]) -> Owners:
    """The inverse of `acl_owners_item`. Raises UNSUPPORTED_FORMAT."""
    check_item("acls_owners", item)
    found: dict[Rule, set[str]] = {}
    try:
        for name, rows in json.loads(_unpacked(bytes(item["owners"]["B"]))).items():
            for row in rows:
                found.setdefault(parse_rule(*row), set()).add(name)
    except (ValueError, TypeError, AttributeError, zlib.error, PenstockError) as error:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT, f"this release cannot read the owners of rules ({error}): use a later one"
        ) from error
    return {rule: frozenset(names) for rule, names in found.items()}


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


def acl_writes(
    seen: str, book: RuleBook, owners: Owners | None = None
) -> tuple[ConditionalPut | ConditionalUpdate, ...]:
    """The items for one transaction; `owners` None leaves theirs.

    The condition of rules and mark is that the stored revision is the one that was seen. That of the owners refuses an
    item of a later format.
    """
    items = (acl_rules_item(book), {**acl_mark_key(), "revision": {"S": book.revision}})
    noted = (
        () if owners is None else (rewriting(acl_owners_item(owners), f"attribute_not_exists({FORMAT_ATTRIBUTE})", {}),)
    )
    if seen == NO_REVISION:
        return (*(ConditionalPut(item=item, condition="attribute_not_exists(pk)") for item in items), *noted)
    return (*(rewriting(item, "revision = :seen", {":seen": {"S": seen}}) for item in items), *noted)


def _rows(rules: Iterable[Rule]) -> list[list[str]]:
    return sorted([*rule.to_json().values()] for rule in rules)


def _packed(content: object, what: str, way_out: str) -> bytes:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    packed = zlib.compress(text)
    for size, kind, most in ((len(text), "as text", ACL_DECODED_BYTES_MAX), (len(packed), "", ACL_ITEM_BYTES_MAX)):
        if size > most:
            raise PenstockError(
                ErrorCode.TOO_MANY_ACLS,
                f"{what} take {size} bytes{kind and f' {kind}'}: {most} at most. {way_out}",
                limit=most,
            )
    return packed


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(data, ACL_DECODED_BYTES_MAX)
    if unpacking.unconsumed_tail:
        raise ValueError(f"more than {ACL_DECODED_BYTES_MAX} bytes")
    return content
