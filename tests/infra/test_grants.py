"""Least privilege: no role holds a power that is forbidden to it, and a grant that is too wide does not pass unseen."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from functools import cache
from itertools import chain
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.service.function_role import function_role
from penstock_cdk.service.functions import construct_name
from penstock_cdk.service.grants import GRANTS, Grants, grants_of
from penstock_cdk.service.push import PushQueues
from penstock_cdk.service.repair import RepairQueues
from penstock_cdk.service.targets import TargetsRole
from penstock_cdk.service.timers import TimerQueues
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import STAGES, Metrics
from penstock_cdk.storage.archive import Archive
from penstock_cdk.storage.stage_storage import StageStorage
from penstock_cdk.storage.tables import Tables
from penstock_cdk.storage.zones import Zones
from penstock_core.routes import ROUTES
from tests.infra.conftest import Resources
from tests.infra.powers import (
    JOBS,
    Permission,
    forbidden,
    holds_where_none_is_told,
    permissions_of_roles,
    permissions_of_statement,
)
from tests.infra.templates import functions_in, name_of, of_type, policies_of_roles
from tests.support.wire import LAMBDA_ENVIRONMENT

pytestmark = pytest.mark.synth


def functions_of(stage: str) -> frozenset[str]:
    return frozenset(map(construct_name, grants_of(STAGES[stage])))


def test_no_role_holds_a_forbidden_power(resources: Resources, stage: str) -> None:
    permissions = list(permissions_of_roles(resources))
    assert {each.holder for each in permissions} >= functions_of(stage) | JOBS
    assert forbidden(permissions) == []


def test_no_condition_on_items_passes_a_call_that_tells_none_but_on_the_emulator(
    resources: Resources, stage: str
) -> None:
    conditions = [
        statement.get("Condition", {})
        for statements in policies_of_roles(resources).values()
        for statement in statements
    ]
    assert any(map(holds_where_none_is_told, conditions)) != STAGES[stage].tells_item_keys


def test_no_action_is_a_wildcard_and_every_resource_is_named_where_aws_allows_it(resources: Resources) -> None:
    unnamed = {each.action for each in permissions_of_roles(resources) if each.resource == "*"}
    assert unnamed <= {
        "dynamodb:ListStreams", "lambda:ListEventSourceMappings", "logs:DescribeLogGroups",
        "xray:PutTelemetryRecords", "xray:PutTraceSegments",
    }  # fmt: skip
    assert not [each for each in permissions_of_roles(resources) if "*" in each.action]


def test_every_function_has_a_role_of_its_own_without_managed_policies(resources: Resources, stage: str) -> None:
    functions = functions_in(resources)
    roles = {name: role for name, role in of_type(resources, "AWS::IAM::Role").items() if name.startswith("Functions")}
    assert {name_of(function["Role"]) for function in functions.values()} == {f"<{role}>" for role in roles}
    assert len(roles) == len(functions) == len(functions_of(stage))
    for role in roles.values():
        assert "ManagedPolicyArns" not in role
        [trust] = role["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


@cache
def storage_of(stage: str) -> tuple[StageStorage, RepairQueues, TimerQueues, PushQueues, WakeUps]:
    """What the functions of a stage use, in a stack that has no functions yet."""
    stack, settings = Stack(), STAGES[stage]
    storage = StageStorage(
        tables=Tables(stack, "Tables", settings=settings),
        zones=Zones(stack, "Zones", settings=settings),
        archive=Archive(stack, "Archive", settings=settings),
    )
    timers = TimerQueues(stack, "Timers", settings=settings)
    push = PushQueues(stack, "Push", settings=settings)
    return (
        storage,
        RepairQueues(stack, "RepairQueues", settings=settings, dead=timers.dead, dead_stream=push.dead),
        timers,
        push,
        WakeUps(stack, "WakeUps", settings=settings),
    )


def with_wider_grants(stage: str, name: str, wider: dict[str, Any]) -> list[Permission]:
    """The permissions of one function's role after its entry of `GRANTS` was changed."""
    storage, queues, timers, push, wake_ups = storage_of(stage)
    stack = Stack.of(queues)
    scope = Construct(stack, f"Role{len(stack.node.children)}")
    role = function_role(
        scope,
        settings=STAGES[stage],
        grants=replace(GRANTS[name], **wider),
        storage=storage,
        queues=queues,
        timers=timers,
        push=push,
        wake_ups=wake_ups,
        targets=TargetsRole(scope, "Targets", settings=STAGES[stage]),
        log_group=logs.LogGroup(scope, "Logs"),
        function_name=f"{STAGES[stage].name}-{name}",
        traces=STAGES[stage].traces,
    )
    made = role.node.default_child
    assert isinstance(made, iam.CfnRole)
    [policy] = stack.resolve(made.policies)
    statements = policy["policyDocument"]["Statement"]
    holder = construct_name(name)
    return [each for statement in statements for each in permissions_of_statement(holder, statement)]


@pytest.mark.parametrize(
    ("name", "wider", "found"),
    [
        ("fetch", {"log": ("GetItem", "DeleteItem")}, "Fetch may dynamodb:DeleteItem on <TablesLog>"),
        ("produce", {"log": ("UpdateItem", "Scan")}, "Produce may dynamodb:Scan on <TablesLog>"),
        ("scrub", {"topics": ("PutItem",)}, "Scrub may dynamodb:PutItem on <TablesTopics>"),
        ("sweep", {"log": ("UpdateItem",)}, "Sweep may dynamodb:UpdateItem on <TablesLog>"),
        ("zones", {"keeps_cursor": True}, "Zones may dynamodb:DeleteItem on <TablesTopics>"),
        ("topics", {"topics": ("DeleteTable",)}, "Topics may dynamodb:DeleteTable on <TablesTopics>"),
        ("groups", {"topics": ("*",)}, "Groups may dynamodb:* on <TablesTopics>"),
        ("groups", {"reads_archive": True}, "Groups may s3:GetObject on <ArchiveBucket>/*"),
        ("replicate", {"sweeps_zones": True}, "Replicate may s3:DeleteObject on <ArchiveBucket>/??/*"),
        ("scrub", {"takes_repairs": True}, "Scrub may sqs:ReceiveMessage on <RepairQueuesRepairs>"),
        ("fetch", {"schedules_records": True}, "Fetch may sqs:SendMessage on <TimersSeconds>"),
        ("sweep", {"promotes": True}, "Sweep may sqs:ReceiveMessage on <TimersSeconds>"),
        ("produce", {"dispatches": True}, "Produce may sqs:SendMessage on <PushDeliveries>"),
        ("topics", {"starts_deliveries": True}, "Topics may sqs:SendMessage on <PushDeliveries>"),
        ("dispatch", {"delivers": True}, "Dispatch may sqs:ReceiveMessage on <PushDeliveries>"),
        ("share", {"pushes": ("PutItem",)}, "Share may dynamodb:PutItem on <TablesGroups>"),
        ("promote", {"dispatches": True}, "Promote may dynamodb:Query on <TablesGroups>"),
        ("deliver", {"groups": ("PutItem",)}, "Deliver may dynamodb:PutItem on <TablesGroups>"),
        ("dispatch", {"log": ("GetItem",)}, "Dispatch may dynamodb:GetItem on <TablesLog>"),
        ("retention", {"sends_repairs": True}, "Retention may sqs:SendMessage on <RepairQueuesRepairs>"),
    ],
)
def test_widened_grant_is_found(stage: str, name: str, wider: dict[str, Any], found: str) -> None:
    assert found in forbidden(with_wider_grants(stage, name, wider))


@pytest.mark.parametrize("name", GRANTS)
def test_no_handler_and_no_task_holds_what_only_another_of_its_function_needs(stage: str, name: str) -> None:
    found = [each for each in with_wider_grants(stage, name, {}) if "Logs>" not in each.resource]
    # The emulator does not tell that a query only counts.
    untold = [] if STAGES[stage].tells_item_keys else [f"{construct_name(name)} may dynamodb:Query on <TablesGroups>"]
    assert forbidden(found) in ([], untold)


def test_function_may_do_what_its_handlers_or_tasks_may_and_no_more() -> None:
    found = grants_of(replace(STAGES["prod"], metrics=Metrics(of="all")))
    upkeep = [GRANTS[name] for name in ("recover_zones", "measure", "audit", "look_at_subscriptions", "retention")]
    for each in fields(Grants):
        values = [getattr(part, each.name) for part in upkeep]
        merged = getattr(found["upkeep"], each.name)
        assert merged == any(values) if isinstance(merged, bool) else set(merged) == {*chain(*values)}, each.name
    assert found["hourly"].writes_archive
    one_zone = grants_of(STAGES["dev"])
    assert not any(grants.changes_zone_states or grants.sends_repairs for grants in one_zone.values())
    assert not one_zone["hourly"].sweeps_zones
    assert not one_zone["hourly"].writes_zones
    assert "hourly" not in grants_of(replace(STAGES["dev"], compaction_bytes_per_day=0))
    assert not one_zone["upkeep"].reads_zones


@pytest.mark.parametrize("name", ["fetch", "records_fetch", "topics", "retention"])
@pytest.mark.parametrize("wider", ["writes_zones", "sweeps_zones"])
def test_function_that_would_change_zones_is_found_when_it_only_reads(stage: str, name: str, wider: str) -> None:
    assert [each for each in forbidden(with_wider_grants(stage, name, {wider: True})) if "<ZonesZoneA>" in each]


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("iam:PassRole", "*"),
        ("iam:PassRole", "<JobsSweepMayRole>"),
        ("kms:Decrypt", "<Key>"),
        ("s3:*", "<ZonesZoneA>/*"),
        ("s3:GetObject", "*"),
        ("s3:GetObject", "arn:aws:s3:::bucket-of-another-stack/*"),
        ("s3:PutBucketPolicy", "<ArchiveBucket>"),
        ("dynamodb:GetItem", "arn:aws:dynamodb:us-east-1:000000000000:table/*"),
        ("logs:PutLogEvents", "<FunctionsSweepLogs>"),
        ("lambda:InvokeFunction", "<FunctionsSweepFunction>"),
        ("sts:AssumeRole", "<FunctionsSweepRole>"),
    ],
)
@pytest.mark.parametrize("holder", ["Fetch", "Topics", "CompactJob", "RoleOfNobody"])
def test_permission_that_no_role_needs_is_found(holder: str, action: str, resource: str) -> None:
    permission = Permission(holder=holder, action=action, resource=resource, condition={})
    assert forbidden([permission]) == [str(permission)]


_USES_OF_ZONES = """
import importlib, json
from penstock_handlers.edge import lambda_function
told, found = [], {{}}
lambda_function._prepare = lambda *, uses_zones: told.append(uses_zones)
for name in {names}:
    importlib.import_module("penstock_handlers." + name)
    found[name] = told[-1]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_function_of_a_route_may_read_the_access_rules() -> None:
    """Each request is checked by them. Without the right, all routes of the function answer 503."""
    serving = {route.handler for route in ROUTES}
    assert {name for name in serving if "GetItem" in GRANTS[name].topics} == serving


def test_functions_open_zones_at_import_when_they_may_use_them() -> None:
    functions = grants_of(replace(STAGES["prod"], metrics=Metrics(of="all")))
    program = f"import sys; sys.path[:0] = {[each for each in sys.path if each]!r}" + _USES_OF_ZONES.format(
        names=[*functions]
    )
    environment = {"PATH": os.environ["PATH"], **LAMBDA_ENVIRONMENT}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout) == {
        name: grants.reads_zones or grants.writes_zones or grants.sweeps_zones for name, grants in functions.items()
    }
