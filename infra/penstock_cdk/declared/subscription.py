"""A subscription that a template declares."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from constructs import Construct

from penstock_cdk.declared.consumer_metrics import ConsumerMetrics
from penstock_cdk.declared.provision import Provision
from penstock_cdk.declared.share_group import deployed_name, plain_name
from penstock_cdk.declared.targets import MirrorStage, Target, open_target
from penstock_cdk.declared.topic import Topic
from penstock_cdk.service.targets import TargetsRole
from penstock_core.errors import PenstockError
from penstock_core.push.subscription import check_declared_subscription


class Subscription(Construct):
    """A subscription, made when the stack is deployed, once its target lets the deliveries in.

    `name` is what you gave. `subscription_name` is the same for resources that are to wait until it is there.
    `metrics` has its lag and its age.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        topics: Sequence[Topic | str],
        target: Target | MirrorStage,
        config: Mapping[str, Any],
        removal_policy: RemovalPolicy,
        provision: Provision,
        role: TargetsRole,
        metrics: ConsumerMetrics,
        alarm_age_ms: int | None,
    ) -> None:
        """Raises ValueError with all mistakes in name and settings."""
        name = metrics.consumer.name
        super().__init__(scope, name)
        try:
            check_declared_subscription(name, {key: plain_name(value) for key, value in config.items()})
        except PenstockError as error:
            raise ValueError(error.message) from error
        self.name = name
        self.metrics = metrics
        if alarm_age_ms is not None:
            metrics.alarm(self, alarm_age_ms)
        opened = open_target(self, target, role)
        to_json = Stack.of(self).to_json_string
        properties = {
            "Name": name,
            "Topics": [deployed_name(topic) for topic in topics],
            "Target": to_json(opened.document),
            "Config": to_json({key: deployed_name(value) for key, value in config.items()}),
        }
        self._resource = provision.resource(self, "Subscription", properties, removal_policy)
        self._resource.node.add_dependency(*opened.policies)

    @property
    def subscription_name(self) -> str:
        """The name, as an attribute of the resource: what uses it is made after the subscription."""
        return self._resource.get_att_string("Name")
