"""A share group that a template declares.

A group of consumers whose metrics a template uses. A group comes into being when its first member joins.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.declared.consumer_metrics import ConsumerMetrics
from penstock_cdk.declared.provision import Provision
from penstock_cdk.declared.rights import Rights
from penstock_cdk.declared.topic import Topic
from penstock_core.errors import PenstockError
from penstock_core.ids import TopicId, TopicName, parse_group_name
from penstock_core.share.share_group import check_declared_group, check_share_topics, new_share_group_config


class ShareGroup(Construct):
    """A share group, made when the stack is deployed, and altered in place when its properties change.

    `name` is what you gave. `group_name` is the same for resources that are to wait until the group is there.
    `metrics` has its lag and its age.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        topics: Sequence[Topic | str],
        config: Mapping[str, Any],
        removal_policy: RemovalPolicy,
        provision: Provision,
        rights: Rights,
        metrics: ConsumerMetrics,
        alarm_age_ms: int | None,
    ) -> None:
        """Raises ValueError with all mistakes in name and settings, and for too many topics."""
        name = metrics.consumer.name
        super().__init__(scope, name)
        _check(name, config, [plain_name(topic) for topic in topics])
        self.name = name
        self.metrics = metrics
        if alarm_age_ms is not None:
            metrics.alarm(self, alarm_age_ms)
        self._rights = rights
        self._topics = [plain_name(topic) for topic in topics]
        properties = {
            "Name": name,
            "Topics": [deployed_name(topic) for topic in topics],
            "Config": Stack.of(self).to_json_string({key: deployed_name(value) for key, value in config.items()}),
        }
        self._resource = provision.resource(self, "ShareGroup", properties, removal_policy)

    @property
    def group_name(self) -> str:
        """The name, as an attribute of the resource: what uses it is made after the group."""
        return self._resource.get_att_string("Name")

    def grant_consume(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allows to acquire and acknowledge the records of this share group. IAM holds the grantee to this group."""
        return self._rights.share(grantee, self.name, self._topics)


def deployed_name(value: Any) -> Any:
    """The name of a topic, as an attribute of its resource. Other values stay as they are."""
    return value.topic_name if isinstance(value, Topic) else value


def plain_name(value: Any) -> Any:
    """The name of a topic as you gave it. Other values stay as they are."""
    return value.name if isinstance(value, Topic) else value


def _check(name: str, config: Mapping[str, Any], topics: Sequence[str]) -> None:
    plain = {key: plain_name(value) for key, value in config.items()}
    try:
        check_declared_group(name, plain)
        settings = new_share_group_config(plain)
        check_share_topics({TopicName(topic): TopicId("") for topic in topics}, settings)
    except PenstockError as error:
        raise ValueError(error.message) from error


class Group(Construct):
    """A group by its name. `metrics` has its lag and its age."""

    def __init__(self, scope: Construct, *, metrics: ConsumerMetrics, alarm_age_ms: int | None) -> None:
        """Raises ValueError for a wrong name, and as `ConsumerMetrics.alarm`."""
        name = metrics.consumer.name
        super().__init__(scope, name)
        try:
            parse_group_name(name)
        except PenstockError as error:
            raise ValueError(error.message) from error
        self.name = name
        self.metrics = metrics
        if alarm_age_ms is not None:
            metrics.alarm(self, alarm_age_ms)
