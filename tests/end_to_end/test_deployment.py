"""What a deployment does apart from its service: a deleted stack takes its data along, and walls hold readers back."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack, aws_iam, aws_s3
from aws_cdk.assertions import Template
from botocore.exceptions import ClientError

from localstack.clients import set_rules
from penstock import Admin, Consumer, Producer
from penstock_cdk.settings import settings_of
from penstock_cdk.storage.emptying import Emptying
from penstock_cdk.storage.results import Catalog
from penstock_cdk.storage.zones import OrdinaryZone, segment_bucket
from tests.end_to_end.local_stack import Stack as LocalStack
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
NAME = "Emptied"
DATABASE = "emptied_stage"
FETCH = "penstock-fetch"


def template_of(*, is_emptied: bool) -> str:
    stack = Stack(App(), NAME, env=Environment(region="us-east-1"))
    bucket: aws_s3.Bucket = segment_bucket(stack, "Bucket", settings_of("local"))
    if is_emptied:
        place = OrdinaryZone("a", bucket.bucket_name, bucket.bucket_arn)
        catalog = Catalog(stack, settings=replace(settings_of("local"), name="emptied-stage"))
        emptying = Emptying(stack, "Emptying", settings=settings_of("local"), buckets=[place], catalog=catalog)
        # The emulator takes the name of a database for that of a table, and asks for permission on this ARN.
        asked = stack.format_arn(service="glue", resource="table", resource_name=DATABASE)
        role = emptying.node.find_child("Role")
        assert isinstance(role, aws_iam.Role)
        role.add_to_policy(aws_iam.PolicyStatement(actions=["glue:DeleteDatabase"], resources=[asked]))
    return json.dumps(Template.from_stack(stack).to_json())


@pytest.fixture
def bucket(stack: LocalStack) -> Iterator[str]:
    """The bucket of a stack that empties it, with 1,100 objects in it: more than one list names."""
    cloudformation, s3 = stack.root_client("cloudformation"), stack.root_client("s3")
    made = {"StackName": NAME, "TemplateBody": template_of(is_emptied=True), "Capabilities": ["CAPABILITY_IAM"]}
    cloudformation.create_stack(**made)
    until(lambda: status_of(cloudformation) == "CREATE_COMPLETE")
    found = cloudformation.describe_stack_resources(StackName=NAME)["StackResources"]
    [name] = [each["PhysicalResourceId"] for each in found if each["ResourceType"] == "AWS::S3::Bucket"]
    glue = stack.root_client("glue")
    if not databases(glue):
        glue.create_database(DatabaseInput={"Name": DATABASE})  # as the first archive does
        glue.create_table(DatabaseName=DATABASE, TableInput={"Name": "orders"})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: s3.put_object(Bucket=name, Key=f"aa/{number}", Body=b"x"), range(1_100)))
    yield name
    if status_of(cloudformation) is not None:
        cloudformation.delete_stack(StackName=NAME)


def databases(glue: Any) -> list[str]:
    return [each["Name"] for each in glue.get_databases()["DatabaseList"] if each["Name"] == DATABASE]


def status_of(cloudformation: Any) -> str | None:
    try:
        [found] = cloudformation.describe_stacks(StackName=NAME)["Stacks"]
    except ClientError:
        return None
    return None if found["StackStatus"] == "DELETE_COMPLETE" else str(found["StackStatus"])


@pytest.mark.minutes
def test_deleted_stack_leaves_no_bucket_when_it_was_full_and_no_database(stack: LocalStack, bucket: str) -> None:
    cloudformation, s3 = stack.root_client("cloudformation"), stack.root_client("s3")
    cloudformation.delete_stack(StackName=NAME)
    until(
        lambda: status_of(cloudformation) is None,
        shown=lambda: [
            each.get("ResourceStatusReason")
            for each in cloudformation.describe_stack_events(StackName=NAME)["StackEvents"]
        ],
    )
    assert bucket not in {each["Name"] for each in s3.list_buckets()["Buckets"]}
    assert databases(stack.root_client("glue")) == []


@pytest.mark.minutes
def test_objects_and_database_stay_when_an_update_stops_the_emptying(stack: LocalStack, bucket: str) -> None:
    cloudformation, s3 = stack.root_client("cloudformation"), stack.root_client("s3")
    cloudformation.update_stack(
        StackName=NAME, TemplateBody=template_of(is_emptied=False), Capabilities=["CAPABILITY_IAM"]
    )
    until(lambda: status_of(cloudformation) == "UPDATE_COMPLETE")
    resources = cloudformation.describe_stack_resources(StackName=NAME)["StackResources"]
    assert "Custom::EmptyBucket" not in {each["ResourceType"] for each in resources}
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1_000
    assert databases(stack.root_client("glue")) == [DATABASE]
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": each["Key"]} for each in page["Contents"]]})


def test_readers_at_their_wall_leave_producers_alone(stack: LocalStack, admin: Admin) -> None:
    admin.create_topic("walled")
    lambdas, transport = stack.root_client("lambda"), stack.transport()
    asked = {"partitions": [{"topic": "walled", "partition": 0, "offset": 0}], "wait_ms": 20_000}

    def fetch() -> int:
        return int(transport.call("POST", "/v1/fetch", {}, {}, json.dumps(asked).encode()).status)

    lambdas.put_function_concurrency(FunctionName=FETCH, ReservedConcurrentExecutions=1)
    try:
        with ThreadPoolExecutor(4) as pool:
            polls = [pool.submit(fetch) for _ in range(4)]
            until(lambda: sum(poll.done() for poll in polls) == 3)
            with Producer(transport=stack.transport()) as producer:
                producer.send("walled", b"value").result()
            statuses = sorted(poll.result() for poll in polls)
    finally:
        lambdas.delete_function_concurrency(FunctionName=FETCH)
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {429, 500, 503}


WALLS = {"penstock-fetch": 2, "penstock-produce": 1, "penstock-groups": 2}  # they leave one of six for all others


@pytest.fixture
def account_of_six(stack: LocalStack) -> Iterator[None]:
    """The emulator runs six functions at once, and keeps what functions have reserved for them."""
    port = int(stack.endpoint_url.rpartition(":")[2])
    set_rules(port, "concurrency.account=6")
    yield
    set_rules(port, "none")
    for name in WALLS:
        stack.root_client("lambda").delete_function_concurrency(FunctionName=name)


@pytest.mark.minutes
def test_flood_of_readers_stops_producers_and_commits_unless_these_have_instances_of_their_own(
    stack: LocalStack, admin: Admin, account_of_six: None
) -> None:
    admin.create_topic("flooded")
    admin.create_topic("fed")
    lambdas, transport, is_over = stack.root_client("lambda"), stack.transport(), threading.Event()
    asked = json.dumps({"partitions": [{"topic": "flooded", "partition": 0, "offset": 0}], "wait_ms": 20_000}).encode()

    def is_refused(path: str) -> bool:
        """True if Lambda starts no function. Else the function refuses the body."""
        status = transport.call("POST", path, {}, {}, b"?").status
        assert status in (400, 500)
        return status == 500

    def poll(method: str, path: str, query: dict[str, str], body: bytes) -> int:
        """A reader that comes again until it is served. It waits for a record."""
        status = 500
        while status == 500 and not is_over.is_set():
            status = transport.call(method, path, query, {}, body).status
        return int(status)

    with (
        Producer(transport=stack.transport()) as producer,
        Consumer("fed", group_id="feeders", transport=stack.transport()) as consumer,
        ThreadPoolExecutor(7) as pool,
    ):
        producer.send("fed", b"value").result()
        until(lambda: len(consumer.poll(max_records=1)) == 1)
        polls = [pool.submit(poll, "POST", "/v1/fetch", {}, asked) for _ in range(6)]
        try:
            until(lambda: is_refused("/v1/produce") and is_refused("/v1/groups/feeders/offsets"))
            for name, instances in WALLS.items():
                lambdas.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=instances)
            by_json = "/v1/topics/flooded/partitions/0/records"
            polls.append(pool.submit(poll, "GET", by_json, {"offset": "0", "wait_ms": "20000"}, b""))
            producer.send("fed", b"second").result()
            consumer.commit()
            assert not any(each.done() for each in polls)
        finally:
            is_over.set()
            set_rules(int(stack.endpoint_url.rpartition(":")[2]), "none")
            producer.send("flooded", b"value").result()
        assert 200 in {each.result() for each in polls}
    assert [lease.offset for lease in admin.describe_group("feeders").partitions] == [1]
