"""Topics and share groups that a template declares: custom resources of one function with few permissions."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Template
from cdk_nag import AwsSolutionsChecks

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Penstock
from penstock_cdk.settings import STAGES
from tests.infra.conftest import Resources, resources_of
from tests.infra.powers import forbidden, permissions_of_roles
from tests.infra.templates import as_list, functions_in, name_of, of_type

pytestmark = pytest.mark.synth


@pytest.fixture
def queue(tmp_path: Path) -> Penstock:
    """A Penstock with the names of a stage's resources."""
    app = App(outdir=str(tmp_path / "out"), builtin_cloud_formation_validation=False)
    stack = Stack(app, "Shop", env=Environment(region="eu-west-1"))
    settings = STAGES["prod"]
    return Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path))


def resources_in(queue: Penstock) -> Resources:
    return resources_of(dict(Template.from_stack(Stack.of(queue)).to_json()))


def declared(queue: Penstock, kind: str) -> dict[str, dict[str, Any]]:
    """The properties of the resources of that kind by the name that they declare."""
    found = of_type(resources_in(queue), f"Custom::Penstock{kind}")
    return {each["Name"]: each for each in found.values()}


def config_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the references in them written as names."""
    return dict(json.loads(name_of(properties["Config"])))


def test_topic_carries_name_partitions_and_settings(queue: Penstock) -> None:
    queue.topic("orders", partitions=6, retention_ms=60_000, cleanup_policy="delete")
    orders = declared(queue, "Topic")["orders"]
    assert (orders["Partitions"], orders["OnDelete"], orders["ServiceTimeout"]) == ("6", "retain", "300")
    assert config_of(orders) == {"retention_ms": 60_000, "cleanup_policy": "delete"}
    assert name_of(orders["ServiceToken"]) == "<FunctionsProvisionFunction>"


def test_topic_goes_with_the_stack_when_its_policy_says_so(queue: Penstock) -> None:
    queue.topic("orders", removal_policy=RemovalPolicy.DESTROY)
    assert declared(queue, "Topic")["orders"]["OnDelete"] == "destroy"


def test_topics_have_the_retention_of_the_construct_unless_they_name_one(tmp_path: Path) -> None:
    settings = STAGES["local"]
    queue = Penstock(
        Stack(App(), "Shop"),
        "Queue",
        settings=settings,
        shipment=empty_shipment(settings, tmp_path),
        topic_retention=Duration.hours(1),
    )
    queue.topic("orders")
    queue.topic("audit", retention_ms=-1)
    found = declared(queue, "Topic")
    assert {name: config_of(each)["retention_ms"] for name, each in found.items()} == {"orders": 3_600_000, "audit": -1}


def test_share_group_waits_for_its_topics_and_its_dead_letter_topic(queue: Penstock) -> None:
    orders, dead = queue.topic("orders"), queue.topic("orders.dead")
    queue.share_group("workers", [orders, "sales"], lock_ms=10_000, dead_letter_topic=dead, deliveries_max=3)
    workers = declared(queue, "ShareGroup")["workers"]
    topics = [name_of(each) for each in workers["Topics"]]
    assert topics == ["<Topicsorders.Name>", "sales"]
    assert config_of(workers) == {
        "lock_ms": 10_000,
        "dead_letter_topic": "<Topicsordersdead.Name>",
        "deliveries_max": 3,
    }


@pytest.mark.parametrize(
    ("declare", "parts"),
    [
        (lambda queue: queue.topic("a b", partitions=0, colour=1), ("'a b'", "0 partitions", "'colour'")),
        (lambda queue: queue.topic("orders", retention_ms="1d"), ("retention_ms='1d'",)),
        (lambda queue: queue.topic("orders", removal_policy=RemovalPolicy.SNAPSHOT), ("SNAPSHOT", "orders")),
        (lambda queue: queue.share_group("w", ["orders"], lock_ms=1, ordering="random"), ("lock_ms=1", "ordering=")),
        (lambda queue: queue.share_group("w", ["orders"], deliveries_max=3), ("without dead_letter_topic",)),
        (lambda queue: queue.share_group("w", ["orders"], filter={"type": "a"}), ("'w'",)),
        (lambda queue: queue.share_group("w", ["orders"], sharing="fair", ordering="key"), ("take one of the two",)),
        (lambda queue: queue.share_group("w", ["orders"], topic_order="first"), ("topic_order='first'",)),
        (lambda queue: queue.share_group("w", [*"abcdefghi"], topic_order="listed"), ("with 9 topics: 8 at most",)),
    ],
)
def test_mistakes_are_told_at_synthesis(
    queue: Penstock, declare: Callable[[Penstock], object], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError) as refused:
        declare(queue)
    for part in parts:
        assert part in str(refused.value)


@pytest.fixture
def resources(queue: Penstock) -> Resources:
    """A stage that declares something of each kind."""
    orders = queue.topic("orders")
    queue.share_group("workers", [orders])
    return resources_in(queue)


def test_one_function_serves_all_and_answers_within_the_wait(resources: Resources) -> None:
    provision = functions_in(resources)["FunctionsProvisionFunction"]
    assert provision["Handler"] == "penstock_handlers.provision.handler"
    assert provision["Timeout"] < 60
    [invoked] = [
        each
        for each in of_type(resources, "AWS::Lambda::EventInvokeConfig").values()
        if name_of(each["FunctionName"]) == "<FunctionsProvisionFunction>"
    ]
    assert invoked["MaximumRetryAttempts"] == 0
    custom = [each for each in resources.values() if each["Type"].startswith("Custom::Penstock")]
    waits_s = {int(each["Properties"]["ServiceTimeout"]) for each in custom}
    assert waits_s == {300}, "custom resources wait so long"
    assert invoked["MaximumEventAgeInSeconds"] + provision["Timeout"] < 300, "no run goes on behind that"


def test_resources_are_made_after_the_function_and_its_policy(resources: Resources) -> None:
    found = [each for each in resources.values() if each["Type"].startswith("Custom::Penstock")]
    assert len(found) == 2
    for resource in found:
        assert "FunctionsProvisionFunction" in {name[:-8] for name in resource["DependsOn"]}
    function = resources["FunctionsProvisionFunction"]
    assert "FunctionsProvisionRoleDefaultPolicy" in {name[:-8] for name in function["DependsOn"]}


def test_subscription_is_made_after_what_its_creation_switches_on(queue: Penstock) -> None:
    queue.subscription("packing", ["orders"], queue.topic("copies"))
    [made] = [each for each in resources_in(queue).values() if each["Type"] == "Custom::PenstockSubscription"]
    after = {name[:-8] for name in made["DependsOn"]}
    assert {"SchedulesLookAtSubscriptions", "PushSourceDeliveries"} <= after


def test_function_holds_no_forbidden_power(resources: Resources) -> None:
    permissions = list(permissions_of_roles(resources))
    own = {str(each.power()) for each in permissions if each.holder == "Provision"}
    assert len(own) > 10
    assert forbidden(permissions) == []


def test_stage_that_declares_nothing_has_no_function_for_it(queue: Penstock) -> None:
    assert "FunctionsProvisionFunction" not in resources_in(queue)


def test_aws_solutions_rules_hold(queue: Penstock) -> None:
    """The function and the queue hold them by themselves. So a violation comes from what a subscription adds."""
    stack, orders = Stack.of(queue), queue.topic("orders")
    queue.share_group("workers", [orders])
    handler = lambda_.Function(
        stack,
        "Handler",
        runtime=lambda_.Runtime.PYTHON_3_14,
        handler="index.handler",
        code=lambda_.Code.from_inline("handler = print"),
        role=iam.Role(stack, "HandlerRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")),
    )
    refused = sqs.DeadLetterQueue(max_receive_count=3, queue=sqs.Queue(stack, "Refused", enforce_ssl=True))
    orders.on_records(handler, filter={"type": ["order"]}, dead_letter_topic=queue.topic("orders.dead"))
    orders.on_records(sqs.Queue(stack, "Jobs", enforce_ssl=True, dead_letter_queue=refused))
    assert set(declared(queue, "Subscription")) == {"orders.Handler", "orders.Jobs"}
    report = AwsSolutionsChecks().validate_scope(stack)
    assert not [
        (violation.rule_name, resource.construct_path)
        for violation in report.violations
        for resource in violation.violating_resources
    ]


def test_function_lets_the_deliveries_in_before_it_is_subscribed(queue: Penstock) -> None:
    orders = queue.topic("orders")
    orders.on_records(some_function(queue), filter={"type": ["order"]}, batch_records=10)
    resources = resources_in(queue)
    subscription = declared(queue, "Subscription")["orders.Handler"]
    assert [name_of(each) for each in subscription["Topics"]] == ["<Topicsorders.Name>"]
    assert json.loads(name_of(subscription["Target"])) == {"lambda": "<Handler>"}
    assert config_of(subscription) == {"filter": {"type": ["order"]}, "batch_records": 10}
    assert subscription["OnDelete"] == "destroy"
    [permission] = [
        name
        for name, each in of_type(resources, "AWS::Lambda::Permission").items()
        if name_of(each["FunctionName"]) == "<Handler>"
    ]
    properties = resources[permission]["Properties"]
    assert properties["Action"] == "lambda:InvokeFunction"
    assert name_of(properties["Principal"]).endswith(":role/penstock-targets-eu-west-1")
    assert "TargetsRole" in {name[:-8] for name in resources[permission]["DependsOn"]}
    assert permission in {name[:-8] for name in resources["SubscriptionsordersHandler"]["DependsOn"]}


def test_queue_lets_the_deliveries_in_and_its_key_too(queue: Penstock) -> None:
    key = kms.Key(Stack.of(queue), "Key")
    target = sqs.Queue(Stack.of(queue), "Jobs", encryption_master_key=key)
    queue.topic("orders").on_records(target, name="to-jobs")
    resources = resources_in(queue)
    assert json.loads(name_of(declared(queue, "Subscription")["to-jobs"]["Target"])) == {"sqs": "<Jobs>"}
    [statement] = resources["JobsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Action"], name_of(statement["Resource"])) == ("sqs:SendMessage", "<Jobs>")
    assert name_of(statement["Principal"]["AWS"]).endswith(":role/penstock-targets-eu-west-1")
    assert "JobsPolicy" in {name[:-8] for name in resources["Subscriptionstojobs"]["DependsOn"]}
    of_key = resources["Key"]["Properties"]["KeyPolicy"]["Statement"]
    assert ["kms:GenerateDataKey", "kms:Decrypt"] in [each["Action"] for each in of_key]


def test_bus_lets_the_deliveries_in(queue: Penstock) -> None:
    target = events.EventBus(Stack.of(queue), "Bus", event_bus_name="shop")
    queue.topic("orders").on_records(target, name="to-bus")
    resources = resources_in(queue)
    assert json.loads(name_of(declared(queue, "Subscription")["to-bus"]["Target"])) == {"event_bus": "<Bus>"}
    [policy] = of_type(resources, "AWS::Events::EventBusPolicy").values()
    assert policy["Statement"]["Action"] == "events:PutEvents"
    assert name_of(policy["Statement"]["Principal"]["AWS"]).endswith(":role/penstock-targets-eu-west-1")


def test_topic_as_a_target_needs_no_policy(queue: Penstock) -> None:
    mirror, dead = queue.topic("mirror"), queue.topic("orders.dead")
    queue.topic("orders").on_records(mirror, dead_letter_topic=dead)
    subscription = declared(queue, "Subscription")["orders.mirror"]
    assert json.loads(name_of(subscription["Target"])) == {"topic": "<Topicsmirror.Name>"}
    assert config_of(subscription) == {"dead_letter_topic": "<Topicsordersdead.Name>"}


def test_function_of_provision_may_try_targets(queue: Penstock) -> None:
    queue.topic("orders").on_records(some_function(queue))
    trusted = resources_in(queue)["TargetsRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    principals = {name_of(arn) for each in trusted for arn in as_list(each["Principal"]["AWS"])}
    assert "<FunctionsProvisionRole>" in principals


def some_function(queue: Penstock) -> lambda_.Function:
    return lambda_.Function(
        Stack.of(queue),
        "Handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("handler = print"),
    )


TEAM = "arn:aws:iam::111122223333:role/shop-*"


def test_rules_of_principals_outside_the_app_are_declared(queue: Penstock) -> None:
    queue.allow(TEAM, "read", "topic:shop.*", "group:shop.*")
    queue.allow(TEAM, "read", "topic:shop.*")  # again: it is one rule
    queue.deny("*", "delete", "topic:*")
    found = of_type(resources_in(queue), "Custom::PenstockAcls").values()
    rules = [rule for each in found for rule in json.loads(each["Rules"])]
    assert sorted(f"{each['operation']} {each['resource']} {each.get('permission')}" for each in rules) == [
        "delete topic:* deny",
        "read group:shop.* None",
        "read topic:shop.* None",
    ]


def test_quotas_are_declared(queue: Penstock) -> None:
    role = iam.Role(Stack.of(queue), "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    queue.quota("principal", TEAM, shared=True, produce_bytes_per_s=50_000_000)
    queue.quota("principal", role, topics_max=3)
    queue.quota("topic", "shop.*", fetch_bytes_per_s=1)
    found = of_type(resources_in(queue), "Custom::PenstockQuota").values()
    assert sorted((each["Subject"], name_of(each["Name"]), each["Limits"], each["Shared"]) for each in found) == [
        ("principal", "<App>", '{"topics_max":3}', "false"),
        ("principal", TEAM, '{"produce_bytes_per_s":50000000}', "true"),
        ("topic", "shop.*", '{"fetch_bytes_per_s":1}', "false"),
    ]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda queue: queue.allow("shop", "read", "topic:a"), "give an IAM ARN"),
        (lambda queue: queue.allow(TEAM, "look", "topic:a"), "must be one of"),
        (lambda queue: queue.deny(TEAM, "read", "orders"), "give service, or KIND:NAME"),
        (lambda queue: queue.quota("group", "g", fetch_bytes_per_s=1), "quotas are of a"),
        (lambda queue: queue.quota("topic", "a"), "has no limit"),
        (lambda queue: queue.quota("topic", "a", shared=True, fetch_bytes_per_s=1), "give a pattern"),
        (lambda queue: queue.quota("topic", "a", topics_max=1), "limit 'topics_max'"),
        (lambda queue: [queue.quota("topic", "a", fetch_bytes_per_s=1) for _ in range(2)], "has a quota in this app"),
    ],
)
def test_wrong_rule_or_quota_is_refused_at_synthesis(
    queue: Penstock, declare: Callable[[Penstock], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        declare(queue)


def test_schedule_carries_times_topic_and_record(queue: Penstock) -> None:
    orders = queue.topic("orders")
    orders.schedule("report", cron="0 9 * * MON-FRI", record="go", time_zone="Europe/Berlin")
    queue.schedule("other", "bills", cron="* * * * *", record={"key": "k", "value": None})
    found = declared(queue, "Schedule")
    report = found["report"]
    assert (report["Cron"], report["TimeZone"], report["OnDelete"]) == ("0 9 * * MON-FRI", "Europe/Berlin", "destroy")
    assert json.loads(name_of(report["Record"])) == {"value": "go"}
    assert name_of(report["Topic"]) != "orders", "it waits for the topic"
    assert (found["other"]["Topic"], found["other"]["TimeZone"]) == ("bills", "UTC")
    assert not forbidden(permissions_of_roles(resources_in(queue)))


@pytest.mark.parametrize(
    ("name", "times", "told"),
    [
        ("a b", {"cron": "* * * * *"}, "a b"),
        ("report", {"cron": "* * *"}, "has 3 fields"),
        ("report", {"cron": "* * * * *", "time_zone": "Berlin"}, "Europe/Berlin"),
    ],
)
def test_schedule_with_a_mistake_is_refused_at_synthesis(
    queue: Penstock, name: str, times: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        queue.schedule(name, "orders", record="go", **times)
