"""A stage's tables come back to an earlier time, on the emulator: `penstock restore`, then writers and readers."""

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from localstack.clients import ROOT_KEY
from penstock.cli import main
from penstock.transports.embedded_storage import find_embedded_stage
from penstock_core.errors import ErrorCode
from penstock_service.adapters.aws import aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.refusals import refused
from tests.support.service import ask, new_topic, send, values_of

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


def test_restored_stage_gives_no_offset_twice_and_tells_its_readers(
    stack: Stack, storage: StackStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PENSTOCK_STACK": "Penstock",
        "AWS_ENDPOINT_URL": stack.endpoint_url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": ROOT_KEY,
        "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
    }.items():
        monkeypatch.setenv(name, value)
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
