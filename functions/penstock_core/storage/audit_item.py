"""The note of a change that is not in the topic `_audit` yet.

```
topics table   pk "#audit"   sk the entry's id, which sorts by time
time_ms                        N
principal, address, request_id S     the caller
action, kind, name             S
before, after                  S     as JSON
result                         S     begun, done or unknown
```
"""

import json
from collections.abc import Mapping
from typing import Any

from penstock_core.audit.audit_entry import AuditEntry, AuditId, AuditResult, Caller
from penstock_core.formats import check_item
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number


def audit_item_key(audit_id: AuditId) -> Item:
    """The key of the note."""
    return {"pk": {"S": keys.AUDIT}, "sk": {"S": audit_id}}


def audit_item(entry: AuditEntry) -> Item:
    """The whole note, for a PutItem."""
    return {
        **audit_item_key(entry.audit_id),
        "time_ms": number(entry.time_ms),
        "principal": {"S": entry.caller.principal},
        "address": {"S": entry.caller.address},
        "request_id": {"S": entry.caller.request_id},
        "action": {"S": entry.action},
        "kind": {"S": entry.kind},
        "name": {"S": entry.name},
        "before": {"S": json.dumps(entry.before)},
        "after": {"S": json.dumps(entry.after)},
        "result": {"S": entry.result.value},
    }


def parse_audit_item(item: Mapping[str, Any]) -> AuditEntry:
    """The inverse of `audit_item`."""
    check_item("audit_entry", item)
    return AuditEntry(
        audit_id=AuditId(item["sk"]["S"]),
        time_ms=int(item["time_ms"]["N"]),
        caller=Caller(
            principal=item["principal"]["S"], address=item["address"]["S"], request_id=item["request_id"]["S"]
        ),
        action=item["action"]["S"],
        kind=item["kind"]["S"],
        name=item["name"]["S"],
        before=json.loads(item["before"]["S"]),
        after=json.loads(item["after"]["S"]),
        result=AuditResult(item["result"]["S"]),
    )
