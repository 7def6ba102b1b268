"""A schedule that a template declares."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aws_cdk import RemovalPolicy, Stack
from constructs import Construct

from penstock_cdk.declared.provision import Provision
from penstock_cdk.declared.share_group import deployed_name
from penstock_core.errors import PenstockError
from penstock_core.schedules.schedule import check_declared_schedule

if TYPE_CHECKING:
    from penstock_cdk.declared.topic import Topic

UTC_ZONE = "UTC"


class Schedule(Construct):
    """A schedule, made when the stack is deployed, and altered in place when its properties change.

    `name` is what you gave. `schedule_name` is the same for resources that are to wait until it is there.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        name: str,
        topic: "Topic | str",
        times: tuple[str, str],
        record: Mapping[str, Any],
        removal_policy: RemovalPolicy,
        provision: Provision,
    ) -> None:
        """`times` are the cron expression and the time zone. Raises ValueError for a mistake in name or times."""
        super().__init__(scope, name)
        cron, time_zone = times
        try:
            check_declared_schedule(name, cron, time_zone)
        except PenstockError as error:
            raise ValueError(error.message) from error
        self.name = name
        properties = {
            "Name": name,
            "Topic": deployed_name(topic),
            "Cron": cron,
            "TimeZone": time_zone,
            "Record": Stack.of(self).to_json_string(dict(record)),
        }
        self._resource = provision.resource(self, "Schedule", properties, removal_policy)

    @property
    def schedule_name(self) -> str:
        """The name, as an attribute of the resource: what uses it is made after the schedule."""
        return self._resource.get_att_string("Name")
