"""Quotas as a caller sends them.

What claims count, and which limit they exceed.
"""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PRINCIPAL_LENGTH_MAX, QUOTA_RATE_MAX
from penstock_core.quotas.quota import (
    Claim,
    ClaimKind,
    Count,
    Quota,
    Rate,
    Subject,
    counts_of,
    exceeded,
    merged,
    merged_counts,
    parse_quota,
    totals,
)


def test_quota_has_the_limits_that_were_sent() -> None:
    quota = parse_quota(
        "principal", "arn:aws:iam::111122223333:role/a", {"produce_bytes_per_s": 5, "fetch_requests_per_s": 2}
    )
    assert quota.rates == {Rate.PRODUCE_BYTES: 5, Rate.FETCH_REQUESTS: 2}
    assert quota.to_json() == {"produce_bytes_per_s": 5, "fetch_requests_per_s": 2}
    assert not quota.is_default


@pytest.mark.parametrize(
    "name",
    ["arn:aws:iam::1:role/path/ledger", "arn:aws:sts::1:assumed-role/ledger/i-0abc", "arn:aws:iam::1:role/ledger"],
)
def test_quota_of_a_role_has_the_name_that_its_requests_have(name: str) -> None:
    assert parse_quota("principal", name, {"fetch_bytes_per_s": 1}).name == "arn:aws:iam::1:role/ledger"


def test_null_takes_a_limit_away() -> None:
    assert parse_quota("topic", "*", {"fetch_bytes_per_s": None}) == Quota(subject=Subject.TOPIC, name="*")


@pytest.mark.parametrize(
    ("subject", "name", "limits", "message"),
    [
        ("group", "g", {}, "subject 'group': quotas are of a 'principal' or 'topic'"),
        ("topic", "a/b", {}, "a/b"),
        ("principal", "", {}, "give 1 to"),
        ("principal", "arn:a b", {}, "'arn:a b'"),
        ("principal", "arn:a\x00b", {}, "principal"),
        ("principal", "ledger", {}, "give an IAM ARN"),
        ("principal", "arn:aws:iam::1:role/led*", {}, "name one"),
        ("principal", "a" * (PRINCIPAL_LENGTH_MAX + 1), {}, "give 1 to"),
        ("topic", "t", {"bytes": 1}, "limit 'bytes': a quota of a topic has produce_bytes_per_s"),
        ("topic", "t", {"topics_max": 1}, "limit 'topics_max'"),
        ("topic", "t", {"topics_max": None}, "limit 'topics_max'"),
        ("principal", "*", {"topics_max": -1}, "topics_max=-1: must be a whole number from 0"),
        ("topic", "t", {"produce_bytes_per_s": 0}, "produce_bytes_per_s=0: must be a whole number from 1"),
        ("topic", "t", {"produce_bytes_per_s": True}, "produce_bytes_per_s=True"),
        ("topic", "t", {"produce_bytes_per_s": 1.5}, "produce_bytes_per_s=1.5"),
        ("topic", "t", {"fetch_bytes_per_s": QUOTA_RATE_MAX + 1}, str(QUOTA_RATE_MAX)),
    ],
)
def test_mistake_is_refused_with_the_value_and_the_way_out(
    subject: str, name: str, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(PenstockError) as refused:
        parse_quota(subject, name, limits)
    assert message in refused.value.message
    assert refused.value.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_NAME)


def test_counts_of_a_principal_merge_each_by_itself() -> None:
    default = parse_quota("principal", "*", {"topics_max": 5, "groups_max": 6, "produce_bytes_per_s": 7})
    own = parse_quota("principal", "arn:a", {"topics_max": 0})
    assert own.to_json() == {"topics_max": 0}
    assert merged_counts(default, own) == {Count.TOPICS: 0, Count.GROUPS: 6}
    assert merged_counts(None, None) == {}


def test_own_limit_goes_before_the_default_each_by_itself() -> None:
    default = parse_quota("topic", "*", {"produce_bytes_per_s": 5, "fetch_bytes_per_s": 6})
    own = parse_quota("topic", "t", {"produce_bytes_per_s": 7})
    assert merged(default, own, Rate.PRODUCE_BYTES) == 7
    assert merged(default, own, Rate.FETCH_BYTES) == 6
    assert merged(default, own, Rate.FETCH_REQUESTS) is None
    assert merged(None, None, Rate.FETCH_BYTES) is None


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
