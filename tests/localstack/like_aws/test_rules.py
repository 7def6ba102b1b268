"""The text that switches rules on: what it means, and what it must not be.

The arithmetic of the rules: sizes of items, units, buckets, and latencies that follow from their seed.
"""

from random import Random
from statistics import median, quantiles
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from localstack.__main__ import main
from localstack.clients import read_rules, set_rules
from localstack.errors import LocalStackError
from localstack.like_aws.dynamodb import TokenBuckets
from localstack.like_aws.dynamodb_call import item_bytes, read_units, write_units
from localstack.like_aws.layer import s3_latency_ms
from localstack.like_aws.rules import RULE_NAMES, Latency, Rules, parse_rules
from tests.localstack.like_aws.conftest import Emulated


def on(rules: Rules) -> list[str]:
    return [name for name in RULE_NAMES if getattr(rules, name).is_on]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("none", []),
        ("all", list(RULE_NAMES)),
        ("freeze", ["freeze"]),
        ("freeze, item_locks", ["freeze", "item_locks"]),
        ("all,latency=off", [name for name in RULE_NAMES if name != "latency"]),
        ("freeze,none", []),
        ("concurrency.account=3", ["concurrency"]),
    ],
)
def test_text_switches_on_what_it_names(text: str, expected: list[str]) -> None:
    assert on(parse_rules(text)) == expected


def test_settings_change_and_all_others_keep_aws_figures() -> None:
    rules = parse_rules("throughput.write_units_per_key=40.5,latency.express_buckets=^a,seed=7")
    assert rules.seed == 7
    assert rules.throughput.write_units_per_key == 40.5
    assert rules.latency.express_buckets == "^a"
    assert (rules.throughput.read_units_per_key, rules.throughput.write_units_per_table) == (3_000, 4_000)
    assert parse_rules("concurrency.account=3").concurrency.account == 3


@pytest.mark.parametrize(
    "text",
    ["freez", "freeze.x=1", "latency.slow_share", "seed=x", "seed", "concurrency.account=-1", "all=1", "freeze=maybe"],
)
def test_text_is_refused_with_its_wrong_part(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        parse_rules(f"all,{text}")


@pytest.mark.slow
def test_running_emulator_tells_its_rules_and_refuses_a_wrong_text(emulated: Emulated) -> None:
    set_rules(emulated.port, "freeze,seed=2")
    with pytest.raises(LocalStackError, match="'nonsense' is no rule"):
        set_rules(emulated.port, "nonsense")
    held = read_rules(emulated.port)["rules"]
    assert (held["freeze"]["is_on"], held["latency"]["is_on"], held["seed"]) == (True, False, 2)
    set_rules(emulated.port, "none")
    assert read_rules(emulated.port)["rules"]["freeze"] == {"is_on": False}


def test_up_refuses_wrong_rules_before_it_starts_anything() -> None:
    done = CliRunner().invoke(main, ["up", "--like-aws", "nonsense"])
    assert done.exit_code == 2
    assert "'nonsense' is no rule" in done.output


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
