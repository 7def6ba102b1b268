"""Least privilege: the exact actions on the exact resources of every function's role, and nothing else."""

from typing import Any

import pytest

from penstock_core.keys import CURSORS, ZONES
from tests.infra.conftest import Resources
from tests.infra.reading import name_of, of_type, permissions

pytestmark = pytest.mark.synth

RECORDS_PRODUCE = {"TablesTopics": "GetItem PutItem", "TablesLog": "UpdateItem PutItem", "zones": "write"}
PRODUCE = RECORDS_PRODUCE | {"TablesLog": "GetItem Query UpdateItem PutItem"}
FETCH = {
    "TablesTopics": "GetItem",
    "TablesLog": "GetItem BatchGetItem Query",
    "zones": "read list",
    "archive": "read list",
    "RepairQueuesRepairs": "SendMessage",
}
ALLOWED = {
    "Produce": PRODUCE,
    "RecordsProduce": RECORDS_PRODUCE,
    "Fetch": FETCH,
    "RecordsFetch": FETCH,
    "Topics": {
        "TablesTopics": "GetItem PutItem DeleteItem Scan",
        "TablesLog": "GetItem BatchGetItem Query PutItem UpdateItem DeleteItem",
        "zones": "read list",
        "archive": "read list",
        "RepairQueuesRepairs": "SendMessage",
    },
    "GroupAdmin": {
        "TablesTopics": "GetItem Scan",
        "TablesLog": "GetItem BatchGetItem Query",
        "TablesGroups": "GetItem BatchGetItem Query PutItem UpdateItem DeleteItem",
        "zones": "read list",
        "archive": "read list",
        "RepairQueuesRepairs": "SendMessage",
    },
    "Transactions": PRODUCE
    | {"TablesLog": "BatchGetItem GetItem Query UpdateItem PutItem", "TablesGroups": "GetItem UpdateItem"},
    "Zones": {"TablesTopics": "GetItem PutItem"},
    "Keeper": {
        "TablesTopics": "GetItem Scan PutItem",
        "TablesLog": "GetItem Query UpdateItem",
        "zones": "read write list",
    },
    "Replicate": {
        "TablesTopics": "GetItem Scan",
        "TablesLog": "GetItem Query UpdateItem",
        "TablesLog.StreamArn": "DescribeStream GetRecords GetShardIterator",
        "*": "ListStreams",
        "zones": "read write list",
        "RepairQueuesRepairs": "SendMessage ReceiveMessage DeleteMessage GetQueueAttributes",
        "RepairQueuesDeadStream": "SendMessage",
    },
    "Groups": {
        "TablesTopics": "GetItem Scan",
        "TablesGroups": "GetItem BatchGetItem Query PutItem UpdateItem DeleteItem",
    },
    "Retention": {
        "TablesTopics": "GetItem PutItem DeleteItem Query Scan",
        "TablesLog": "GetItem BatchGetItem Query UpdateItem DeleteItem",
        "TablesGroups": "GetItem Query PutItem DeleteItem",
    },
    "Scrub": {
        "TablesTopics": "GetItem Scan PutItem DeleteItem",
        "TablesLog": "GetItem Query UpdateItem",
        "zones": "read write list",
        "archive": "read list",
        "RepairQueuesRepairs": "SendMessage",
    },
    "Sweep": {
        "TablesTopics": "GetItem PutItem DeleteItem Scan",
        "TablesLog": "GetItem BatchGetItem Query",
        "zones": "list delete",
        "archive": "list delete",
    },
}
XRAY = {("xray:PutTelemetryRecords", "*"), ("xray:PutTraceSegments", "*")}


def zone_permissions(access: str | None, stage: str) -> set[tuple[str, str]]:
    if access is None:
        return set()
    if stage == "prod":
        return {("s3express:CreateSession", f"<ZonesZone{zone}>") for zone in "ABC"}
    return {pair for zone in "ABC" for pair in bucket_permissions(access, f"<ZonesZone{zone}>")}


def bucket_permissions(access: str, bucket: str) -> set[tuple[str, str]]:
    """What the words of `access` allow on an ordinary bucket."""
    words = {
        "read": ("s3:GetObject", "/*"),
        "write": ("s3:PutObject", "/*"),
        "list": ("s3:ListBucket", ""),
        "delete": ("s3:DeleteObject", "/*"),
    }
    return {(words[word][0], f"{bucket}{words[word][1]}") for word in access.split()}


def statements_of(resources: Resources, function: str) -> list[dict[str, Any]]:
    role = f"<Functions{function}Role>"
    found = of_type(resources, "AWS::IAM::Policy").values()
    return [
        statement
        for policy in found
        if [name_of(attached) for attached in policy["Roles"]] == [role]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


@pytest.mark.parametrize("function", ALLOWED)
def test_role_allows_exactly_what_its_function_calls(resources: Resources, stage: str, function: str) -> None:
    allowed = dict(ALLOWED[function])
    zones = zone_permissions(allowed.pop("zones", None), stage)
    archive = bucket_permissions(allowed.pop("archive", ""), "<ArchiveBucket>")
    stored = {
        (f"{'sqs' if name.startswith('RepairQueues') else 'dynamodb'}:{action}", name if name == "*" else f"<{name}>")
        for name, actions in allowed.items()
        for action in actions.split()
    }
    logs = {(f"logs:{action}", f"<Functions{function}Logs>") for action in ("CreateLogStream", "PutLogEvents")}
    tracing = set() if stage == "local" else XRAY
    assert permissions(statements_of(resources, function)) == logs | stored | zones | archive | tracing


def test_every_function_has_a_role_of_its_own_without_managed_policies(resources: Resources) -> None:
    functions = of_type(resources, "AWS::Lambda::Function")
    found = of_type(resources, "AWS::IAM::Role")
    roles = {name: role for name, role in found.items() if name.startswith("Functions")}
    assert {name_of(function["Role"]) for function in functions.values()} == {f"<{role}>" for role in roles}
    assert len(roles) == len(functions) == len(ALLOWED)
    assert not any(role.get("ManagedPolicyArns") or role.get("Policies") for role in roles.values())


@pytest.mark.parametrize("stage", ["prod"], indirect=False)
@pytest.mark.parametrize(
    ("function", "mode"),
    [("Produce", "ReadWrite"), ("Fetch", "ReadOnly"), ("Topics", "ReadOnly"), ("Sweep", "ReadWrite")],
)
def test_session_with_a_directory_bucket_is_of_the_mode_that_the_function_needs(
    resources: Resources, function: str, mode: str
) -> None:
    sessions = [
        statement
        for statement in statements_of(resources, function)
        if "s3express:CreateSession" in statement["Action"]
    ]
    assert sessions
    assert all(statement["Condition"] == {"StringEquals": {"s3express:SessionMode": mode}} for statement in sessions)


@pytest.mark.parametrize("function", ["Produce", "RecordsProduce", "Zones", "Keeper"])
def test_function_that_moves_zones_may_put_nothing_else_among_the_topics(resources: Resources, function: str) -> None:
    [statement] = [
        statement
        for statement in statements_of(resources, function)
        if name_of(statement["Resource"]) == "<TablesTopics>" and "dynamodb:PutItem" in statement["Action"]
    ]
    assert statement["Action"] == "dynamodb:PutItem"
    assert statement["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [ZONES]}}


def test_scrub_may_write_cursors_only_among_the_topics(resources: Resources) -> None:
    [statement] = [
        statement
        for statement in statements_of(resources, "Scrub")
        if name_of(statement["Resource"]) == "<TablesTopics>" and "dynamodb:PutItem" in statement["Action"]
    ]
    assert statement["Action"] == ["dynamodb:PutItem", "dynamodb:DeleteItem"]
    assert statement["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [CURSORS]}}


def test_retention_may_not_touch_s3(resources: Resources) -> None:
    actions = {action for action, _ in permissions(statements_of(resources, "Retention"))}
    assert not any(action.startswith("s3") for action in actions)
