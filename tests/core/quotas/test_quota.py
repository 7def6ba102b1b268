"""Quotas as a caller sends them.

What claims count, and which limit they exceed.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PRINCIPAL_LENGTH_MAX, QUOTA_RATE_MAX
from penstock_core.quotas.quota import (
    Claim,
    ClaimKind,
    Count,
    Quota,
    QuotaBook,
    Rate,
    RateLimit,
    Subject,
    counts_of,
    exceeded,
    parse_quota,
    totals,
)


def test_quota_has_the_limits_that_were_sent() -> None:
    quota = parse_quota(
        "principal", "arn:aws:iam::111122223333:role/a", {"produce_bytes_per_s": 5, "fetch_requests_per_s": 2}
    )
    assert quota.rates == {Rate.PRODUCE_BYTES: 5, Rate.FETCH_REQUESTS: 2}
    assert quota.to_json() == {"produce_bytes_per_s": 5, "fetch_requests_per_s": 2}
    assert not quota.is_pattern


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
        ("principal", "arn:aws:iam::1:role/a*d", {}, "stands at the end only"),
        ("topic", "a*b", {}, "a*b"),
        ("topic", "a/*", {}, "a/"),
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
    book = QuotaBook([default, own])
    assert book.counts("arn:a") == {Count.TOPICS: 0, Count.GROUPS: 6}
    assert book.counts("arn:b") == {Count.TOPICS: 5, Count.GROUPS: 6}
    assert QuotaBook([]).counts("arn:a") == {}


def test_own_limit_goes_before_the_default_each_by_itself() -> None:
    default = parse_quota("topic", "*", {"produce_bytes_per_s": 5, "fetch_bytes_per_s": 6})
    own = parse_quota("topic", "t", {"produce_bytes_per_s": 7})
    book = QuotaBook([default, own])
    assert book.rate(Subject.TOPIC, "t", Rate.PRODUCE_BYTES) == RateLimit(units_per_s=7)
    assert book.rate(Subject.TOPIC, "t", Rate.FETCH_BYTES) == RateLimit(units_per_s=6)
    assert book.rate(Subject.TOPIC, "t", Rate.FETCH_REQUESTS) is None
    assert book.rate(Subject.PRINCIPAL, "t", Rate.FETCH_BYTES) is None
    assert book.subjects == {Subject.TOPIC}


def test_pattern_has_the_name_of_its_beginning() -> None:
    assert parse_quota("topic", "shop.*", {"fetch_bytes_per_s": 1}).name == "shop.*"
    assert parse_quota("principal", "arn:aws:iam::1:role/shop-*", {"fetch_bytes_per_s": 1}).is_pattern
    sessions = parse_quota("principal", "arn:aws:sts::1:assumed-role/shop-*", {"fetch_bytes_per_s": 1})
    assert sessions.name == "arn:aws:iam::1:role/shop-*"


@pytest.mark.parametrize(
    ("name", "limits", "message"),
    [
        ("arn:aws:iam::1:role/shop", {"fetch_bytes_per_s": 1}, "give a pattern, with a * at the end"),
        ("arn:aws:iam::1:role/shop*", {"fetch_bytes_per_s": 1, "topics_max": 1}, "shared with topics_max"),
    ],
)
def test_shared_quota_is_of_a_pattern_and_of_rates(name: str, limits: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError) as refused:
        parse_quota("principal", name, limits, is_shared=True)
    assert (refused.value.code, message in refused.value.message) == (ErrorCode.INVALID_CONFIG, True)


def test_limit_of_a_shared_pattern_names_it() -> None:
    team = parse_quota("principal", "arn:shop-*", {"fetch_bytes_per_s": 5, "fetch_requests_per_s": 3}, is_shared=True)
    book = QuotaBook([team, parse_quota("principal", "arn:shop-api", {"fetch_requests_per_s": 1})])
    assert book.rate(Subject.PRINCIPAL, "arn:shop-api", Rate.FETCH_BYTES) == RateLimit(
        units_per_s=5, shared_by="arn:shop-*"
    )
    assert book.rate(Subject.PRINCIPAL, "arn:shop-api", Rate.FETCH_REQUESTS) == RateLimit(units_per_s=1)


PATTERNS = st.builds(lambda text, star: text + star, st.text("ab", max_size=3), st.sampled_from(["", "*"]))


@given(
    st.lists(st.tuples(PATTERNS.filter(bool), st.sets(st.sampled_from(Rate), min_size=1)), max_size=8), st.text("ab")
)
def test_most_specific_quota_with_the_limit_holds(given_quotas: list[tuple[str, set[Rate]]], name: str) -> None:
    quotas = {
        pattern: Quota(subject=Subject.TOPIC, name=pattern, rates=dict.fromkeys(rates, number + 1))
        for number, (pattern, rates) in enumerate(given_quotas)
    }
    book = QuotaBook(quotas.values())
    for _ in range(2):  # looked up, and remembered
        for rate in Rate:
            matching = [
                each
                for each in quotas.values()
                if rate in each.rates and (each.name == name or (each.is_pattern and name.startswith(each.name[:-1])))
            ]
            best = max(matching, key=lambda each: (not each.is_pattern, len(each.name)), default=None)
            found = book.rate(Subject.TOPIC, name, rate)
            assert (found and found.units_per_s) == (best and best.rates[rate])


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
