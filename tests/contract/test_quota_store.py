"""The contract of QuotaStore, held by the adapters in memory and on DynamoDB."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.quotas.bucket import Bucket, BucketKey, fresh_bucket
from penstock_core.quotas.quota import Claim, ClaimKind, Quota, Rate, Subject, parse_quota
from tests.contract.conftest import Ports

KEY = BucketKey(subject=Subject.TOPIC, name="t1", rate=Rate.FETCH_BYTES)
NOW = 1_000_000
CALLER = "arn:aws:iam::123456789012:user/a"
FRESH = fresh_bucket(1_000, 10, NOW)


def test_declared_quota_is_deleted_by_the_resource_that_has_set_it_last(ports: Ports) -> None:
    quota = Quota(subject=Subject.PRINCIPAL, name=CALLER, rates={Rate.PRODUCE_BYTES: 5}, declared_by="a")
    ports.quotas.put(quota)
    assert [*ports.quotas.list()] == [quota]
    assert not ports.quotas.delete(Subject.PRINCIPAL, CALLER, "b")
    ports.quotas.put(replace(quota, declared_by=""))
    assert not ports.quotas.delete(Subject.PRINCIPAL, CALLER, "a")
    ports.quotas.put(quota)
    assert ports.quotas.delete(Subject.PRINCIPAL, CALLER, "a")
    assert not ports.quotas.delete(Subject.PRINCIPAL, CALLER, "a")
    assert not ports.quotas.list()


def test_declared_quota_takes_the_place_of_its_stacks_alone(ports: Ports) -> None:
    quota = Quota(subject=Subject.PRINCIPAL, name=CALLER, rates={Rate.PRODUCE_BYTES: 5}, declared_by="a.1")
    assert ports.quotas.put(quota, "a.")
    moved = replace(quota, declared_by="a.2")
    assert ports.quotas.put(moved, "a.")
    assert not ports.quotas.put(replace(quota, declared_by="b.1"), "b.")
    assert [*ports.quotas.list()] == [moved]
    ports.quotas.put(replace(quota, declared_by=""))
    assert not ports.quotas.put(quota, "a.")


def test_quotas_are_listed_by_subject_and_name_until_they_are_deleted(ports: Ports) -> None:
    quotas = [
        parse_quota("principal", "*", {"produce_bytes_per_s": 5}),
        parse_quota("principal", CALLER, {"fetch_requests_per_s": 1}),
        parse_quota("topic", "a", {"fetch_bytes_per_s": 1}),
    ]
    for quota in reversed(quotas):
        ports.quotas.put(quota)
    assert list(ports.quotas.list()) == quotas
    changed = parse_quota("topic", "a", {"fetch_bytes_per_s": 2})
    ports.quotas.put(changed)
    assert ports.quotas.delete(Subject.PRINCIPAL, CALLER)
    assert not ports.quotas.delete(Subject.PRINCIPAL, CALLER)
    assert list(ports.quotas.list()) == [quotas[0], changed]


def test_claims_are_those_of_one_principal_until_they_are_dropped(ports: Ports) -> None:
    topic = Claim(kind=ClaimKind.TOPIC, name="a", resource_id="t1", partitions=2, claimed_at_ms=NOW)
    group = Claim(kind=ClaimKind.GROUP, name="a", claimed_at_ms=NOW)
    ports.quotas.put_claim("arn:a", topic)
    ports.quotas.put_claim("arn:a", group)
    ports.quotas.put_claim("arn:a:b", group)
    larger = replace(topic, partitions=5)
    ports.quotas.put_claim("arn:a", larger)
    assert {*ports.quotas.claims("arn:a")} == {larger, group}
    for other in (replace(topic, resource_id="t2"), replace(topic, claimed_at_ms=NOW - 1)):
        ports.quotas.drop_claim("arn:a", other)
    assert {*ports.quotas.claims("arn:a")} == {larger, group}
    for _ in range(2):
        ports.quotas.drop_claim("arn:a", topic)
    assert [*ports.quotas.claims("arn:a")] == [group] == [*ports.quotas.claims("arn:a:b")]
    for _ in range(2):
        ports.quotas.forget_claim("arn:a", ClaimKind.GROUP, "a", "")
    assert [*ports.quotas.claims("arn:a")] == []


def test_bucket_begins_once(ports: Ports) -> None:
    begun = ports.quotas.begin(KEY, None, FRESH)
    assert (begun.is_made, begun.bucket) == (True, FRESH)
    other = ports.quotas.begin(KEY, None, fresh_bucket(1_000, 99, NOW))
    assert (other.is_made, other.bucket) == (False, FRESH)


def test_bucket_begins_anew_in_place_of_the_one_that_was_seen(ports: Ports) -> None:
    ports.quotas.begin(KEY, None, FRESH)
    newer = fresh_bucket(2_000, 1, NOW + 5)
    assert not ports.quotas.begin(KEY, Bucket(rate=1_000, since_ms=NOW, charged=9), newer).is_made
    assert ports.quotas.begin(KEY, FRESH, newer).is_made
    refused = ports.quotas.charge(KEY, FRESH, 1, NOW)
    assert (refused.is_made, refused.bucket) == (False, newer)


def test_charge_adds_while_there_is_credit(ports: Ports) -> None:
    ports.quotas.begin(KEY, None, FRESH)
    charged = ports.quotas.charge(KEY, FRESH, 5_000, NOW)
    assert (charged.is_made, charged.bucket) == (True, Bucket(rate=1_000, since_ms=NOW, charged=5_010))
    refused = ports.quotas.charge(KEY, FRESH, 1, NOW)
    assert (refused.is_made, refused.bucket) == (False, charged.bucket)
    assert ports.quotas.charge(KEY, FRESH, 1, NOW + 5_000).is_made


def test_charge_of_a_bucket_that_is_not_there_is_refused(ports: Ports) -> None:
    refused = ports.quotas.charge(KEY, FRESH, 1, NOW)
    assert (refused.is_made, refused.bucket) == (False, None)


def _is_moto(request: pytest.FixtureRequest) -> bool:
    return bool({"aws", "direct"} & {*request.node.callspec.params.values()})


def test_charges_of_many_instances_add_up(ports: Ports, request: pytest.FixtureRequest) -> None:
    ports.quotas.begin(KEY, None, FRESH)
    with ThreadPoolExecutor(
        1 if {"aws", "direct"} & {*request.node.callspec.params.values()} else 4
    ) as pool:  # moto's updates are not atomic
        made = list(pool.map(lambda _: ports.quotas.charge(KEY, FRESH, 7, NOW).is_made, range(20)))
    stored = ports.quotas.charge(KEY, FRESH, 0, NOW).bucket
    assert all(made)
    assert stored is not None
    assert stored.charged == 10 + 20 * 7


def test_one_quota_too_many_is_refused_and_a_change_is_not(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_service.adapters.dynamodb.quotas.QUOTAS_MAX", 20)  # each put reads all of them
    for number in range(20):
        ports.quotas.put(parse_quota("topic", f"t{number}", {"fetch_bytes_per_s": 1}))
    with pytest.raises(PenstockError, match="1000 quotas") as refused:
        ports.quotas.put(parse_quota("topic", "more", {"fetch_bytes_per_s": 1}))
    assert refused.value.code is ErrorCode.TOO_MANY_QUOTAS
    ports.quotas.put(parse_quota("topic", "t0", {"fetch_bytes_per_s": 2}))
