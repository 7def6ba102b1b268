"""`penstock restore` on tables of DynamoDB: a plan, the jumps, and a repeat that finds them (finding U15)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import Result

from tests.golden.stage import TABLES, Stage, empty_stage
from tests.sdk.cli.command import run
from tests.support.service import batch, key_of

RESTORED = ("--topics-table", "topics-restored", "--log-table", "log-restored")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage with 3 records in orders-0, and 5 more since the time to which its tables were restored."""
    for name, value in {
        **{f"PENSTOCK_{table.upper()}_TABLE": table for table in TABLES},
        "PENSTOCK_ZONES": "a=zone-a",
        "PENSTOCK_ARCHIVE": "archive",
        "PENSTOCK_ACL_DEFAULT": "allow",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)
    with empty_stage() as stage:
        stage.service.create("orders", 2)
        assert stage.service.produce(("orders", 0, batch("0", "1", "2"))).status == 200
        for table in TABLES:
            restore(stage, table)
        assert stage.service.produce(("orders", 0, batch("3", "4", "5", "6", "7"))).status == 200
        yield stage


def restore(stage: Stage, table: str) -> None:
    """Copies the table, as DynamoDB restores it: under another name."""
    described = stage.dynamodb.describe_table(TableName=table)["Table"]
    stage.dynamodb.create_table(
        TableName=f"{table}-restored",
        AttributeDefinitions=described["AttributeDefinitions"],
        KeySchema=described["KeySchema"],
        BillingMode="PAY_PER_REQUEST",
    )
    for item in stage.items(table):
        stage.put(f"{table}-restored", item)


def jumps(result: Result) -> list[tuple[int, int, bool, bool]]:
    """Start, end, and the two marks of each partition of orders."""
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["topics"]["orders"]
    return [(each["start"], each["end"], each["is_lost"], each["was_done"]) for each in found]


def head(stage: Stage, partition: int = 0) -> dict[str, Any]:
    key = {"pk": {"S": str(key_of(stage.instance, "orders", partition))}, "sk": {"S": "head"}}
    found: dict[str, Any] = stage.dynamodb.get_item(TableName="log-restored", Key=key)["Item"]
    return found


def test_dry_run_shows_the_jumps_and_changes_nothing(stage: Stage) -> None:
    before = stage.items("log-restored")
    assert jumps(run(None, "restore", *RESTORED, "--dry-run", "--json")) == [
        (3, 1_008, False, False),
        (0, 1_000, False, False),
    ]
    assert stage.items("log-restored") == before


def test_repeat_finds_what_was_done(stage: Stage) -> None:
    first = jumps(run(None, "restore", *RESTORED, "--yes", "--json"))
    assert [int(head(stage, partition)["next_offset"]["N"]) for partition in (0, 1)] == [1_008, 1_000]
    assert jumps(run(None, "restore", *RESTORED, "--yes", "--json")) == [(*each[:3], True) for each in first]
    result = run(None, "restore", *RESTORED, "--yes")
    assert result.exit_code == 0
    assert "orders" in result.stdout
    assert "1 of 1: orders" in result.stderr


def test_stage_that_stands_on_the_restored_tables_names_the_harmed_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in TABLES:
        monkeypatch.setenv(f"PENSTOCK_{table.upper()}_TABLE", f"{table}-restored")
    result = run(None, "restore", "--yes")
    assert (result.exit_code, "--harmed-log-table" in result.stderr) == (1, True), "it would jump over nothing"
    assert jumps(run(None, "restore", "--harmed-log-table", "log", "--yes", "--json"))[0] == (3, 1_008, False, False)


def test_lost_harmed_table_means_a_longer_jump(stage: Stage) -> None:
    found = jumps(run(None, "restore", *RESTORED, "--harmed-lost", "--yes", "--json"))
    assert found == [(3, 3 + 2**30, True, False), (0, 2**30, True, False)]
    assert run(None, "restore", *RESTORED, "--harmed-lost", "--harmed-log-table", "log").exit_code == 2
    assert stage.items("log") != stage.items("log-restored")


def test_restored_table_that_does_not_exist_is_named(stage: Stage) -> None:
    assert stage
    result = run(None, "restore", "--topics-table", "topics-restored", "--log-table", "log-restord", "--yes")
    assert (result.exit_code, "log-restord" in result.stderr) == (1, True)


def test_answer_no_changes_nothing(stage: Stage) -> None:
    before = stage.items("log-restored")
    assert run(None, "restore", *RESTORED, stdin=b"n\n").exit_code == 1
    assert stage.items("log-restored") == before
