"""A whole stage as CloudFormation has deployed it, on moto: the template that ships, and what it makes.

CloudFormation itself, Glue, EMR and what moto lacks of DynamoDB are answered here. A restored table has the items that
`snapshot` has kept, because moto restores the items of now. Calls can be denied, and the process can be killed once AWS
has done one of them.
"""

import copy
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.session
from aws_cdk.assertions import Template as AppTemplate
from botocore.exceptions import ClientError
from moto.dynamodb.models import dynamodb_backends

from bench.bill.synthesized import stack_of  # before aws_cdk, which it silences
from penstock_cdk.settings import STAGES
from penstock_cdk.walls import reserved_concurrency
from tests.golden.stage import TABLES, Stage, empty_stage
from tests.support.service import Killed

ACCOUNT, REGION = "123456789012", "us-east-1"
_READS = ("Describe", "Get", "List")
_ROLE = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}
Template = Mapping[str, Any]


@dataclass
class DeployedStage:
    """The stage. `calls` are the actions of IAM that a command has asked for. `denied` are refused."""

    stage: Stage
    template: dict[str, Any]
    physical: dict[str, str]
    outputs: dict[str, str]
    status: str = "UPDATE_COMPLETE"
    denied: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    clients: dict[str, Any] = field(default_factory=dict)
    kill_after: Callable[[str], bool] = lambda _: False
    running: list[dict[str, str]] = field(default_factory=list)
    snapshots: dict[str, Any] = field(default_factory=dict)
    create_only: list[str] = field(default_factory=list)
    ringing: list[str] = field(default_factory=list)
    code_bytes_max: int = 80_000_000_000
    busy: dict[str, list[str]] = field(default_factory=dict)

    def client(self, service: str, region: str | None = None) -> Any:
        """A client as the commands make it, with moto behind it. Makes each once."""
        if service in self.clients:
            return self.clients[service]
        made = self.clients[service] = botocore.session.Session().create_client(service, region_name=region or REGION)
        made.meta.events.register(f"before-call.{service}", self._answer)
        made.meta.events.register(f"after-call.{service}", self._done)
        return made

    def snapshot(self) -> None:
        """The second to which tables come back."""
        self.snapshots = {name: copy.deepcopy(self.table(name).items) for name in TABLES}

    def table(self, name: str) -> Any:
        """A table of moto."""
        return dynamodb_backends[ACCOUNT][REGION].tables[name]

    def deploy(self, restored_tables: str) -> None:
        """What `cdk deploy -c restored_tables=…` does to the stack."""
        for name, value in (each.split("=") for each in restored_tables.split(",")):
            output = {"topics": "TopicsTable", "log": "LogTable", "groups": "GroupsTable"}.get(name)
            if output is not None:
                self.outputs[output] = value

    def states(self) -> dict[str, Any]:
        """The state of all that a restore stops."""
        found: dict[str, Any] = {}
        lambda_, events, scheduler = map(_client_of_moto, ("lambda", "events", "scheduler"))
        for logical_id, resource in self.template["Resources"].items():
            name = self.physical.get(logical_id, "")
            match resource["Type"]:
                case "AWS::Lambda::Function":
                    told = lambda_.get_function_concurrency(FunctionName=name)
                    found[name] = told.get("ReservedConcurrentExecutions")
                case "AWS::Events::Rule":
                    found[f"rule {name}"] = events.describe_rule(Name=name)["State"]
                case "AWS::Scheduler::Schedule":
                    found[f"schedule {name}"] = scheduler.get_schedule(Name=name)["State"]
                case "AWS::Lambda::EventSourceMapping":
                    found[f"mapping {logical_id}"] = lambda_.get_event_source_mapping(UUID=name)["State"]
        return found

    def _answer(self, model: Any, params: Any, **_: Any) -> Any:
        action = f"{model.service_model.service_name}:{model.name}"
        self.calls.append(action)
        if action in self.denied:
            refusal = {"Code": "AccessDeniedException", "Message": "User ann is not authorized"}
            return SimpleNamespace(status_code=403), {"Error": refusal, "ResponseMetadata": {}}
        if self.busy.get(action):
            return SimpleNamespace(status_code=400), {
                "Error": {"Code": self.busy[action].pop()},
                "ResponseMetadata": {},
            }
        answer = self._canned(action)
        return None if answer is None else (SimpleNamespace(status_code=200), answer)

    def _canned(self, action: str) -> dict[str, Any] | None:
        outputs = [{"OutputKey": key, "OutputValue": value} for key, value in self.outputs.items()]
        resources = [
            {
                "LogicalResourceId": logical,
                "PhysicalResourceId": self.physical.get(logical, logical),
                "ResourceType": each["Type"],
            }
            for logical, each in self.template["Resources"].items()
        ]
        answers: dict[str, dict[str, Any]] = {
            "cloudformation:DescribeStacks": {"Stacks": [{"StackStatus": self.status, "Outputs": outputs}]},
            "cloudformation:GetTemplate": {"TemplateBody": self.template},
            "cloudformation:ListStackResources": {"StackResourceSummaries": resources},
            "glue:GetJobRuns": {"JobRuns": self.running},
            "emr-serverless:ListJobRuns": {"jobRuns": []},
            "cloudformation:DescribeType": {"Schema": json.dumps({"createOnlyProperties": self.create_only})},
            "cloudwatch:DescribeAlarms": {"MetricAlarms": [{"AlarmName": each} for each in self.ringing]},
            "lambda:GetAccountSettings": {
                "AccountLimit": {"TotalCodeSize": self.code_bytes_max},
                "AccountUsage": {"TotalCodeSize": 10_000_000_000},
            },
            "lambda:ListProvisionedConcurrencyConfigs": {"ProvisionedConcurrencyConfigs": []},
            "dynamodb:DescribeContributorInsights": {"ContributorInsightsStatus": "DISABLED"},
            "dynamodb:DescribeKinesisStreamingDestination": {"KinesisDataStreamDestinations": []},
        }
        return answers.get(action)

    def _done(self, model: Any, parsed: Mapping[str, Any], **_: Any) -> None:
        action = f"{model.service_model.service_name}:{model.name}"
        if model.name == "RestoreTableToPointInTime" and "TableDescription" in parsed:
            described = parsed["TableDescription"]
            source = described["RestoreSummary"]["SourceTableArn"].split("/")[-1]
            self.table(described["TableName"]).items = copy.deepcopy(self.snapshots[source])
        if not model.name.startswith(_READS) and self.kill_after(action):
            raise Killed(action)


def production_template(folder: Path) -> dict[str, Any]:
    """The template of `prod` with walls, and one schedule of a job that is on. Assets lie in `folder`."""
    settings = replace(
        STAGES["prod"],
        region=REGION,
        storage_profile="standard1",
        account_concurrency=1_000,
        reserved_concurrency=reserved_concurrency(1_000),
        scheduled_jobs=frozenset({"compact"}),
        timers_always_on=True,
        super_principals=("arn:aws:iam::123456789012:role/operators",),
    )
    return dict(AppTemplate.from_stack(stack_of(settings, folder)).to_json())


def write_assembly(command: Sequence[str], template: Template) -> None:
    """What `cdk synth --output FOLDER` leaves in the folder."""
    folder = Path(command[command.index("--output") + 1])
    properties = {"templateFile": "t.json", "stackName": "Penstock"}
    artifact = {"type": "aws:cloudformation:stack", "properties": properties}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": {"Penstock": artifact}}))
    (folder / "t.json").write_text(json.dumps(template))


@contextmanager
def deployed_stage(template: Template) -> Iterator[DeployedStage]:
    """The stage of this template. Its tables, buckets and service are those of `empty_stage`."""
    with empty_stage() as stage:
        outputs = {
            "TopicsTable": "topics",
            "LogTable": "log",
            "GroupsTable": "groups",
            "ZoneBuckets": "a=zone-a",
            "ArchiveBucket": "archive",
            "AclDefault": "allow",
            "JobsApplicationId": "application",
            "JobCompactGlue": "penstock-compact",
        }
        found = DeployedStage(stage, copy.deepcopy(dict(template)), {}, outputs)
        _make(found)
        yield found


@cache
def _client_of_moto(service: str) -> Any:
    """One client for all tests: to make one takes longer than most of its calls."""
    return boto3.client(service, region_name=REGION, aws_access_key_id="testing", aws_secret_access_key="testing")


def _make(deployed: DeployedStage) -> None:
    clients = {each: _client_of_moto(each) for each in ("lambda", "events", "scheduler", "iam", "sqs")}
    role = clients["iam"].create_role(RoleName="any", AssumeRolePolicyDocument=json.dumps(_ROLE))["Role"]["Arn"]
    queue = clients["sqs"].create_queue(QueueName="any")["QueueUrl"]
    arn = clients["sqs"].get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    for logical_id, resource in deployed.template["Resources"].items():
        made = _make_one(clients, resource["Type"], resource.get("Properties", {}), role)
        if made is not None:
            deployed.physical[logical_id] = made
    for logical_id, resource in deployed.template["Resources"].items():
        if resource["Type"] == "AWS::Lambda::EventSourceMapping":
            is_on = resource["Properties"].get("Enabled", True)
            target = {"FunctionName": "penstock-deliver", "EventSourceArn": arn, "Enabled": is_on}
            deployed.physical[logical_id] = clients["lambda"].create_event_source_mapping(**target)["UUID"]
    for table in TABLES:
        made_table = deployed.table(table)
        recovery = {
            "PointInTimeRecoveryStatus": "ENABLED",
            "EarliestRestorableDateTime": 0.0,
            "RecoveryPeriodInDays": 20,
        }
        recovery["LatestRestorableDateTime"] = deployed.stage.clock.now_ms() / 1_000
        made_table.continuous_backups["PointInTimeRecoveryDescription"] = recovery
        deployed.stage.dynamodb.update_table(TableName=table, DeletionProtectionEnabled=True)
        tags = [{"Key": "penstock:stage", "Value": "penstock"}]
        deployed.stage.dynamodb.tag_resource(ResourceArn=made_table.table_arn, Tags=tags)


def _make_one(clients: Mapping[str, Any], kind: str, properties: Mapping[str, Any], role: str) -> str | None:
    if kind == "AWS::Lambda::Function":
        name = str(properties["FunctionName"])
        clients["lambda"].create_function(
            FunctionName=name,
            Role=role,
            Runtime="python3.13",
            Handler=properties["Handler"],
            Timeout=properties["Timeout"],
            Code={"ZipFile": _zip()},
        )
        reserved = properties.get("ReservedConcurrentExecutions")
        if reserved is not None:
            clients["lambda"].put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)
        return name
    if kind == "AWS::Events::Rule":
        name = str(properties["Name"])
        clients["events"].put_rule(
            Name=name, ScheduleExpression="rate(1 minute)", State=properties.get("State", "ENABLED")
        )
        return name
    if kind == "AWS::Scheduler::Schedule":
        name = str(properties["Name"])
        clients["scheduler"].create_schedule(
            Name=name,
            Description=properties["Description"],
            ScheduleExpression=properties["ScheduleExpression"],
            FlexibleTimeWindow={"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15},
            State=properties["State"],
            Target={"Arn": "arn:aws:scheduler:::aws-sdk:emrserverless:startJobRun", "RoleArn": role, "Input": "{}"},
        )
        return name
    return None


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        files.writestr("penstock_handlers.py", "")
    return packed.getvalue()


def is_missing(call: Callable[[], object]) -> bool:
    """True if AWS says that what a call names is not there."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"] in ("ResourceNotFoundException", "NoSuchKey")
    return False
