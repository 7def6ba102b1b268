"""The item of a quota (core/quotas/quota.py).

```
groups table   pk "#quotas"   sk "<subject>#<name>", a pattern ends in "*", and "*" is the default
limits   M      by the limit's name in the API, rates, counts and stored bytes: N
shared   BOOL   of a pattern whose names have one budget; absent for budgets of their own
declared_by S   the resource of a template that has set it; absent once somebody else has
```

The item of a bucket, which all instances charge (core/quotas/bucket.py).

```
groups table   pk "#bucket#<subject>#<name, topic id, or pattern of a shared quota>"   sk "<rate's name>"
rate           N   units a second
since_ms       N   when the bucket began
charged        N   units since then
expires_at_s   N   DynamoDB removes the item some time after it: a day after the last charge
```

The item of a claim (core/quotas/claim.py).

```
groups table    pk "#claims#<principal>"   sk "<kind>#<name>#<resource's id>"
resource_id     S   of the resource, of a group drawn for the claim; older claims of groups have none
partitions      N   of a topic, that the principal has made; absent for 0
claimed_at_ms   N
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.quotas.bucket import Bucket
from penstock_core.quotas.quota import STORED_BYTES, Claim, ClaimKind, Count, Quota, Rate, Subject
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number

_KEPT_S = 86_400


def quota_key(subject: Subject, name: str) -> Item:
    """The key of the quota."""
    return {"pk": {"S": keys.QUOTAS}, "sk": {"S": f"{subject}#{name}"}}


def quota_item(quota: Quota) -> Item:
    """The whole item."""
    limits = {name: number(value) for name, value in quota.to_json().items()}
    shared = {"shared": {"BOOL": True}} if quota.is_shared else {}
    declared = {"declared_by": {"S": quota.declared_by}} if quota.declared_by else {}
    return {**quota_key(quota.subject, quota.name), "limits": {"M": limits}, **shared, **declared}


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
        stored_bytes_max=limits.get(STORED_BYTES),
        is_shared=item.get("shared", {}).get("BOOL", False),
        declared_by=item.get("declared_by", {}).get("S", ""),
    )


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


def claims_pk(principal: str) -> str:
    """The partition key of all claims of the principal."""
    return f"{keys.CLAIMS}#{principal}"


def claim_key(principal: str, kind: ClaimKind, name: str, resource_id: str) -> Item:
    """The key of the claim."""
    return {"pk": {"S": claims_pk(principal)}, "sk": {"S": "#".join(filter(None, (kind, name, resource_id)))}}


def claim_item(principal: str, claim: Claim) -> Item:
    """The whole item."""
    return {
        **claim_key(principal, *claim.place),
        **({"resource_id": {"S": claim.resource_id}} if claim.resource_id else {}),
        **({"partitions": number(claim.partitions)} if claim.partitions else {}),
        "claimed_at_ms": number(claim.claimed_at_ms),
    }


def parse_claim(item: Mapping[str, Any]) -> Claim:
    """The inverse of `claim_item`."""
    check_item("claim", item)
    resource_id = item["resource_id"]["S"] if "resource_id" in item else ""
    kind, _, name = item["sk"]["S"].partition("#")
    return Claim(
        kind=ClaimKind(kind),
        name=name.removesuffix(f"#{resource_id}") if resource_id else name,
        resource_id=resource_id,
        partitions=int(item["partitions"]["N"]) if "partitions" in item else 0,
        claimed_at_ms=int(item["claimed_at_ms"]["N"]),
    )
