"""What claims count, and which limit they exceed."""

from penstock_core.quotas.claim import Claim, ClaimKind, counts_of, exceeded, totals
from penstock_core.quotas.quota import Count


def claim(kind: ClaimKind, name: str, partitions: int = 0) -> Claim:
    return Claim(kind=kind, name=name, partitions=partitions, claimed_at_ms=0)


CLAIMS = [
    claim(ClaimKind.TOPIC, "a", 3),
    claim(ClaimKind.PARTITIONS, "others", 2),
    claim(ClaimKind.GROUP, "g"),
    claim(ClaimKind.SHARE_GROUP, "g"),
    claim(ClaimKind.SUBSCRIPTION, "s"),
]


def test_claims_count_by_limit_and_share_groups_are_groups() -> None:
    assert totals(CLAIMS) == {Count.TOPICS: 1, Count.PARTITIONS: 5, Count.GROUPS: 2, Count.SUBSCRIPTIONS: 1}


def test_limit_is_exceeded_above_it_and_names_itself() -> None:
    assert exceeded({Count.PARTITIONS: 5}, [Count.PARTITIONS], CLAIMS) is None
    error = exceeded({Count.PARTITIONS: 4, Count.TOPICS: 0}, [Count.PARTITIONS], CLAIMS)
    assert error is not None
    assert (error.code.name, error.facts["quota"], error.facts["limit"]) == ("QUOTA_EXCEEDED", "partitions_max", 4)
    assert "would have 5 partitions" in error.message


def test_claim_may_exceed_its_own_limits_only() -> None:
    assert counts_of(CLAIMS[0], is_new=True) == {Count.TOPICS, Count.PARTITIONS}
    assert counts_of(CLAIMS[0], is_new=False) == counts_of(CLAIMS[1], is_new=True) == {Count.PARTITIONS}
    assert counts_of(CLAIMS[3], is_new=True) == {Count.GROUPS}


def test_claims_of_creations_of_one_name_at_once_count_as_one_with_the_most_partitions() -> None:
    racers = [
        Claim(kind=ClaimKind.TOPIC, name="a", resource_id=each, partitions=number, claimed_at_ms=0)
        for each, number in (("1", 2), ("2", 5))
    ]
    found = totals([*CLAIMS, *racers])
    assert (found[Count.TOPICS], found[Count.PARTITIONS]) == (1, 7)
