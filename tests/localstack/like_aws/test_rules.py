"""The text that switches rules on: what it means, and what it must not be."""

import pytest
from click.testing import CliRunner

from localstack.__main__ import main
from localstack.errors import LocalStackError
from localstack.like_aws.rules import RULE_NAMES, Rules, parse_rules
from localstack.rules_client import read_rules, set_rules
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
