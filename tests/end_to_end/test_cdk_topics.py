"""CloudFormation makes and alters topics and share groups on the emulator, with the permissions of their function."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_cdk import RemovalPolicy

from localstack.deploy import stack_status
from localstack.errors import LocalStackError
from penstock.jobs.deployed import read_deployed_jobs
from penstock_cdk import Penstock
from penstock_core.errors import PenstockError
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack, deploy_own

pytestmark = [pytest.mark.stack, pytest.mark.minutes]


def first(queue: Penstock) -> None:
    orders = queue.topic("orders", partitions=2, retention_ms=60_000, removal_policy=RemovalPolicy.DESTROY)
    queue.topic("audit")
    dead = queue.topic("orders.dead")
    queue.share_group(
        "workers",
        [orders],
        dead_letter_topic=dead,
        start="latest",
        lock_ms=10_000,
        removal_policy=RemovalPolicy.DESTROY,
    )


def altered(queue: Penstock) -> None:
    orders = queue.topic("orders", partitions=4, removal_policy=RemovalPolicy.DESTROY)
    sales = queue.topic("sales", partitions=3)
    queue.topic("audit")
    queue.share_group("workers", [orders, sales], start="latest", removal_policy=RemovalPolicy.DESTROY)


def refused(queue: Penstock) -> None:
    """The stack adds partitions to orders, then it fails, and takes back what it did."""
    orders = queue.topic("orders", partitions=6, removal_policy=RemovalPolicy.DESTROY)
    sales = queue.topic("sales", partitions=3)
    queue.topic("audit")
    queue.share_group("workers", [orders, sales], start="earliest", removal_policy=RemovalPolicy.DESTROY)


def without_group_and_topic(queue: Penstock) -> None:
    queue.topic("sales", partitions=3)


@pytest.fixture(scope="module")
def own(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    """One deployment for all tests of this file. The last one alters it, and is the only one that may."""
    try:
        yield deploy_own(stack, tmp_path_factory.mktemp("shop") / "out", first)
    finally:
        cloudformation = stack.root_client("cloudformation")
        cloudformation.delete_stack(StackName=NAME)


def test_commands_find_the_construct_in_its_stack(own: OwnStack, stack: Stack) -> None:
    found = read_deployed_jobs(stack.root_client("cloudformation"), f"{NAME}/Queue")
    assert found.jobs["compact"].glue_name == f"{SETTINGS.name}-compact"


def topics_of(own: OwnStack) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in own.admin().list_topics()}


def test_stack_makes_alters_refuses_and_deletes_what_it_declares(own: OwnStack, stack: Stack, tmp_path: Path) -> None:
    port = int(stack.endpoint_url.rpartition(":")[2])
    assert topics_of(own) == {"orders": 2, "orders.dead": 1, "audit": 1}
    group = own.admin().describe_share_group("workers").group
    assert group.config["dead_letter_topic"] == "orders.dead"
    assert group.config["lock_ms"] == 10_000

    deploy_own(stack, tmp_path / "out", altered)
    assert topics_of(own) == {"orders": 4, "orders.dead": 1, "audit": 1, "sales": 3}
    group = own.admin().describe_share_group("workers").group
    assert set(group.topics) == {"orders", "sales"}
    assert group.config["dead_letter_topic"] is None
    assert group.config["lock_ms"] != 10_000

    with pytest.raises(LocalStackError, match=r"start=.earliest."):
        deploy_own(stack, tmp_path / "out", refused)
    assert stack_status(port, NAME) == "UPDATE_ROLLBACK_COMPLETE"
    assert (topics_of(own)["orders"], topics_of(own)["sales"]) == (6, 3)

    deploy_own(stack, tmp_path / "out", without_group_and_topic)
    assert set(topics_of(own)) >= {"orders.dead", "audit", "sales"}
    assert "orders" not in topics_of(own)
    with pytest.raises(PenstockError, match="workers"):
        own.admin().describe_share_group("workers")
