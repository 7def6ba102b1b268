"""The item of a bucket, which all instances charge (core/quotas/bucket.py).

```
groups table   pk "#bucket#<subject>#<name or topic id>"   sk "<rate's name>"
rate           N   units a second
since_ms       N   when the bucket began
charged        N   units since then
expires_at_s   N   DynamoDB removes the item some time after it: a day after the last charge
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.quotas.bucket import Bucket
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number

_KEPT_S = 86_400


def bucket_key(subject: str, name: str, rate: str) -> Item:
    """The key of the bucket."""
    return {"pk": {"S": f"{keys.BUCKET}#{subject}#{name}"}, "sk": {"S": rate}}


def parse_bucket(item: Mapping[str, Any]) -> Bucket:
    """The bucket that the item holds."""
    check_item("bucket", item)
    return Bucket(rate=int(item["rate"]["N"]), since_ms=int(item["since_ms"]["N"]), charged=int(item["charged"]["N"]))


def bucket_put(key: Item, old: Bucket | None, new: Bucket) -> ConditionalPut:
    """The put of `new` in place of `old`."""
    item = {
        **key,
        "rate": number(new.rate),
        "since_ms": number(new.since_ms),
        "charged": number(new.charged),
        "expires_at_s": number(new.since_ms // 1_000 + _KEPT_S),
    }
    if old is None:
        return ConditionalPut(item=item, condition="attribute_not_exists(pk)")
    return ConditionalPut(
        item=item,
        condition="#rate = :rate AND since_ms = :since AND charged = :charged",
        values={":rate": number(old.rate), ":since": number(old.since_ms), ":charged": number(old.charged)},
        names={"#rate": "rate"},
    )


def bucket_charge(key: Item, bucket: Bucket, units: int, now_ms: int) -> ConditionalUpdate:
    """The update that charges units, if there is credit."""
    return ConditionalUpdate(
        key=key,
        update="SET expires_at_s = :expires ADD charged :units",
        condition="#rate = :rate AND since_ms = :since AND charged < :ceiling",
        values={
            ":units": number(units),
            ":expires": number(now_ms // 1_000 + _KEPT_S),
            ":rate": number(bucket.rate),
            ":since": number(bucket.since_ms),
            ":ceiling": number(bucket.ceiling(now_ms)),
        },
        names={"#rate": "rate"},
    )
