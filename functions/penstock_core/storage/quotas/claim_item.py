"""The item of a claim (core/quotas/claim.py).

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
from penstock_core.quotas.claim import Claim, ClaimKind
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number


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
