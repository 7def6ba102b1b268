"""A topic that a template declares."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.declared.provision import Provision
from penstock_cdk.declared.rights import Rights
from penstock_core.errors import PenstockError
from penstock_core.log.topic import check_declared_topic

if TYPE_CHECKING:
    from penstock_cdk.declared.schedule import Schedule
    from penstock_cdk.declared.subscription import Subscription
    from penstock_cdk.declared.targets import Target

Subscribe = Callable[..., "Subscription"]
MakeSchedule = Callable[..., "Schedule"]
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")  # what no name of a subscription may have


class Topic(Construct):
    """A topic, made when the stack is deployed, and altered in place when its properties change.

    `name` is what you gave. `topic_name` is the same for resources that are to wait until the topic is there.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        name: str,
        partitions: int,
        config: Mapping[str, Any],
        removal_policy: RemovalPolicy,
        provision: Provision,
        rights: Rights,
        subscribe: "Subscribe",
        schedule: "MakeSchedule",
    ) -> None:
        """Raises ValueError with all mistakes in name, partitions and settings."""
        super().__init__(scope, name)
        try:
            check_declared_topic(name, partitions, config)
        except PenstockError as error:
            raise ValueError(error.message) from error
        self.name = name
        self._rights = rights
        self._subscribe = subscribe
        self._schedule = schedule
        properties = {
            "Name": name,
            "Partitions": str(partitions),
            "Config": Stack.of(self).to_json_string(dict(config)),
        }
        self._resource = provision.resource(self, "Topic", properties, removal_policy)

    @property
    def topic_name(self) -> str:
        """The name, as an attribute of the resource: what uses it is made after the topic."""
        return self._resource.get_att_string("Name")

    @property
    def topic_id(self) -> str:
        """The topic's id, which the service draws."""
        return self._resource.get_att_string("Id")

    def on_records(
        self,
        target: "Target",
        *,
        name: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        **config: Any,
    ) -> "Subscription":
        """Delivers this topic to a function, a queue, a bus or another topic, which lets the deliveries in.

        The subscription's name is by default `<topic>.<id of the target>`. `config` has its settings, such as `filter`.
        """
        own_name = name or _UNFIT.sub("-", f"{self.name}.{target.node.id}")
        return self._subscribe(own_name, [self], target, removal_policy=removal_policy, **config)

    def schedule(self, name: str, *, cron: str, record: Mapping[str, Any] | str, **options: Any) -> "Schedule":
        """Sends a record to this topic at the times of a cron expression, with the options of `Penstock.schedule`."""
        return self._schedule(name, self, cron=cron, record=record, **options)

    def grant_produce(self, grantee: iam.IGrantable, *, json_only: bool = False) -> iam.Grant:
        """Allows to produce to this topic.

        The SDK's producer posts to a route that carries topics in its body: with it, a grantee may produce to every
        topic. With `json_only`, IAM holds the grantee to this topic, and it may produce by the JSON route only.
        """
        return self._rights.produce(grantee, self.name, json_only=json_only)

    def grant_consume(self, grantee: iam.IGrantable, *, group: str | None = None, json_only: bool = False) -> iam.Grant:
        """Allows to read this topic, and with `group` to work in that consumer group.

        The SDK's consumer fetches by a route that carries topics in its body: with it, a grantee may read every topic.
        With `json_only`, IAM holds the grantee to this topic, and it may read by the JSON routes only.
        """
        return self._rights.consume(grantee, self.name, group=group, json_only=json_only)
