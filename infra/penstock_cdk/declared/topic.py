"""A topic that a template declares."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from constructs import Construct

from penstock_cdk.declared.provision import Provision
from penstock_core.errors import PenstockError
from penstock_core.log.topic import check_declared_topic


class Topic(Construct):
    """A topic, made when the stack is deployed, and altered in place when its properties change.

    `name` is what you gave. `topic_name` is the same for resources that shall wait until the topic is there.
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
    ) -> None:
        """Raises ValueError with all mistakes in name, partitions and settings."""
        super().__init__(scope, name)
        try:
            check_declared_topic(name, partitions, config)
        except PenstockError as error:
            raise ValueError(error.message) from error
        self.name = name
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
