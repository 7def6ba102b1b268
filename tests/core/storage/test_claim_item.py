import pytest

from penstock_core.quotas.quota import Claim, ClaimKind
from penstock_core.storage.quota_items import claim_item, parse_claim

ADA = "arn:aws:iam::1:user/ada"


@pytest.mark.parametrize(
    "claim",
    [
        Claim(kind=ClaimKind.TOPIC, name="orders", resource_id="t1", partitions=3, claimed_at_ms=5),
        Claim(kind=ClaimKind.GROUP, name="a#b", claimed_at_ms=5),
    ],
)
def test_claim_comes_back(claim: Claim) -> None:
    assert parse_claim(claim_item(ADA, claim)) == claim


def test_claims_of_a_principal_lie_together() -> None:
    item = claim_item(ADA, Claim(kind=ClaimKind.GROUP, name="g", claimed_at_ms=5))
    assert (item["pk"], item["sk"]) == ({"S": f"#claims#{ADA}"}, {"S": "group#g"})


def test_claims_of_one_name_lie_apart_by_their_ids() -> None:
    item = claim_item(ADA, Claim(kind=ClaimKind.TOPIC, name="t", resource_id="i1", claimed_at_ms=5))
    assert item["sk"] == {"S": "topic#t#i1"}
