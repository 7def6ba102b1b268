"""A stage's tables come back to an earlier time, on the emulator: `penstock restore`, then writers and readers."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from localstack.clients import ROOT_KEY
from penstock.cli import main
from penstock.jobs.deployed import client
from penstock.transports.embedded_storage import find_embedded_stage
from penstock_core.errors import ErrorCode
from penstock_service.adapters.aws import aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.refusals import refused
from tests.support.service import SteppedClock, ask, new_topic, send, values_of

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

TOPIC = "restored-orders"


def _copy(dynamodb: Any, table: str) -> str:
    """Copies a table under another name, as DynamoDB restores it."""
    described = dynamodb.describe_table(TableName=table)["Table"]
    dynamodb.create_table(
        TableName=f"{table}-restored",
        AttributeDefinitions=described["AttributeDefinitions"],
        KeySchema=described["KeySchema"],
        BillingMode="PAY_PER_REQUEST",
    )
    for page in dynamodb.get_paginator("scan").paginate(TableName=table):
        for item in page["Items"]:
            dynamodb.put_item(TableName=f"{table}-restored", Item=item)
    return f"{table}-restored"


def _client_of_a_wide_window(service: str, region: str | None) -> Any:
    """A client whose recovery is on since 2020: the emulator's begins at each call, and its template leaves it off."""
    made = client(service, region)

    def widen(parsed: dict[str, Any], **_: Any) -> None:
        parsed["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"] = {
            "PointInTimeRecoveryStatus": "ENABLED",
            "EarliestRestorableDateTime": datetime(2020, 1, 1, tzinfo=UTC),
            "LatestRestorableDateTime": datetime.now(UTC),
        }

    made.meta.events.register("after-call.dynamodb.DescribeContinuousBackups", widen)
    return made


@pytest.fixture
def environment(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage and the keys of an operator."""
    for name, value in {
        "PENSTOCK_STACK": "Penstock",
        "AWS_ENDPOINT_URL": stack.endpoint_url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": ROOT_KEY,
        "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_restore_stops_the_stage_restores_its_tables_and_gives_up(
    stack: Stack, storage: StackStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the deployment, and back. The emulator restores tables as they are now."""
    clock = SteppedClock()
    monkeypatch.setattr("penstock.cli.restore.wall_clock_ms", clock.now_ms)
    monkeypatch.setattr("penstock.cli.restore._sleep_ms", clock.sleep_ms)
    monkeypatch.setattr("penstock.deployed.aws.client", _client_of_a_wide_window)
    dynamodb, functions = stack.root_client("dynamodb"), stack.root_client("lambda")
    stage = aws_instance(find_embedded_stage().storage, StorageCalls())
    new_topic(stage, "given-up")
    send(stage, "given-up", "kept")
    to = "2026-01-02T03:04:05Z"
    done = CliRunner().invoke(main, ["restore", "--to", to, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    states = {each["step"]: each["state"] for each in document["steps"]}
    assert [step for step, state in states.items() if state == "done"] == [
        *("stop", "restore", "settings", "jump", "expiry"),
    ]
    restored = [each["restored"] for each in document["tables"].values()]
    assert all(name in document["next"] for name in restored)
    assert functions.get_function_concurrency(FunctionName="penstock-produce")["ReservedConcurrentExecutions"] == 0
    described = dynamodb.describe_table(TableName=document["tables"]["log"]["restored"])["Table"]
    assert described["StreamSpecification"]["StreamEnabled"]
    undone = CliRunner().invoke(main, ["restore", "--undo", "--yes", "--json"])
    assert undone.exit_code == 0, undone.output
    assert sorted(json.loads(undone.stdout)["tables_left"]) == sorted(restored)
    assert "ReservedConcurrentExecutions" not in functions.get_function_concurrency(FunctionName="penstock-produce")
    assert send(stage, "given-up", "more").base_offset == 1


@pytest.mark.usefixtures("environment")
def test_restored_stage_gives_no_offset_twice_and_tells_its_readers(stack: Stack, storage: StackStorage) -> None:
    dynamodb = stack.root_client("dynamodb")
    found = find_embedded_stage().storage
    stage = aws_instance(found, StorageCalls())
    new_topic(stage, TOPIC)
    send(stage, TOPIC, "kept")
    topics, log = (_copy(dynamodb, storage.outputs[f"{table}Table"]) for table in ("Topics", "Log"))
    send(stage, TOPIC, *["lost"] * 4)
    arguments = ["restore", "--topics-table", topics, "--log-table", log, "--yes", "--json"]
    for was_done in (False, True):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        [jump] = json.loads(result.stdout)["topics"][TOPIC]
        assert jump == {"partition": 0, "start": 1, "end": 1_005, "is_lost": False, "was_done": was_done}

    restored = aws_instance(replace(found, topics_table=topics, log_table=log), StorageCalls())
    assert send(restored, TOPIC, "new").base_offset == 1_005
    assert values_of(ask(restored, TOPIC, 1), 1) == [(1_005, "new")], "a reader at the restored end passes"
    error = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(restored, TOPIC, 4))
    assert error.facts["to"] == 1_005
