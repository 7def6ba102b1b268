"""The arithmetic of the rules: sizes of items, units, buckets, and latencies that follow from their seed."""

from random import Random
from statistics import median, quantiles
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localstack.like_aws.dynamodb import TokenBuckets
from localstack.like_aws.dynamodb_call import item_bytes, read_units, write_units
from localstack.like_aws.layer import s3_latency_ms
from localstack.like_aws.rules import Latency


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "é"}, 2),
        ({"B": "AAECAw=="}, 4),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"N": "1234"}, 3),
        ({"N": "-12"}, 3),
        ({"N": "1200"}, 2),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + 1 + 2 + 1 + 2),
        ({"M": {"k": {"S": "ab"}}}, 3 + 1 + 1 + 2),
        ({"SS": ["a", "bc"]}, 3),
        ({"NS": ["1", "22"]}, 4),
    ],
)
def test_value_has_the_size_that_dynamodb_documents(value: dict[str, Any], size: int) -> None:
    assert item_bytes({"name": value}) == len("name") + size


@pytest.mark.parametrize(("size", "write", "read"), [(0, 1, 1), (1024, 1, 1), (1025, 2, 1), (4096, 4, 1), (4097, 5, 2)])
def test_units_count_started_kilobytes(size: int, write: float, read: float) -> None:
    assert write_units(size) == write
    assert read_units(size, is_consistent=True) == read
    assert read_units(size, is_consistent=False) == read / 2


def test_bucket_admits_until_it_is_empty_and_pays_its_debt_by_time() -> None:
    buckets = TokenBuckets()
    assert not buckets.is_empty("key", 10.0, now_s=0.0)
    buckets.charge("key", 10.0, 15.0, now_s=0.0)
    assert buckets.is_empty("key", 10.0, now_s=0.5)
    assert not buckets.is_empty("key", 10.0, now_s=0.6)
    assert not buckets.is_empty("other", 10.0, now_s=0.0)


@given(st.lists(st.floats(min_value=0.1, max_value=50.0), max_size=40), st.floats(min_value=1.0, max_value=100.0))
def test_bucket_never_admits_more_than_its_rate_and_one_second_and_one_call(costs: list[float], per_s: float) -> None:
    buckets, now_s, admitted = TokenBuckets(), 0.0, 0.0
    for cost in costs:
        now_s += 0.05
        if not buckets.is_empty("key", per_s, now_s):
            buckets.charge("key", per_s, cost, now_s)
            admitted += cost
    assert admitted <= per_s * (1.0 + now_s) + max(costs, default=0.0) + 1e-6


@pytest.mark.parametrize(
    ("bucket", "is_put", "low", "high"),
    [
        ("z--use1-az4--x-s3", True, 5.5, 6.6),
        ("penstock-zonea", False, 4.5, 5.5),
        ("archive", True, 27.0, 33.0),
        ("archive", False, 22.5, 27.5),
    ],
)
def test_latency_has_the_published_median_and_a_tail(bucket: str, is_put: bool, low: float, high: float) -> None:
    chance = Random(1)
    drawn = [s3_latency_ms(Latency(), chance, bucket=bucket, is_put=is_put) for _ in range(4_000)]
    assert low < median(drawn) < high
    assert quantiles(drawn, n=100)[98] > 2 * median(drawn)


def test_latencies_repeat_with_their_seed() -> None:
    first, second = (
        [s3_latency_ms(Latency(), chance, bucket="b", is_put=True) for _ in range(20)]
        for chance in (Random(7), Random(7))
    )
    assert first == second
