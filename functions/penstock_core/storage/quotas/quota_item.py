"""The item of a quota (core/quotas/quota.py).

```
groups table   pk "#quotas"   sk "<subject>#<name>", "*" as the name of the default
limits   M   by the limit's name in the API, rates and counts: N
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.quotas.quota import Count, Quota, Rate, Subject
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number


def quota_key(subject: Subject, name: str) -> Item:
    """The key of the quota."""
    return {"pk": {"S": keys.QUOTAS}, "sk": {"S": f"{subject}#{name}"}}


def quota_item(quota: Quota) -> Item:
    """The whole item."""
    limits = {name: number(value) for name, value in quota.to_json().items()}
    return {**quota_key(quota.subject, quota.name), "limits": {"M": limits}}


def parse_quota_item(item: Mapping[str, Any]) -> Quota:
    """The inverse of `quota_item`. Leaves out limits of a later release."""
    check_item("quota", item)
    subject, _, name = item["sk"]["S"].partition("#")
    limits = {limit: int(value["N"]) for limit, value in item["limits"]["M"].items()}
    return Quota(
        subject=Subject(subject),
        name=name,
        rates={Rate(limit): value for limit, value in limits.items() if limit in set(Rate)},
        counts={Count(limit): value for limit, value in limits.items() if limit in set(Count)},
    )
