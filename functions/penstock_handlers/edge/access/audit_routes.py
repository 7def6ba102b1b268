"""The routes that leave a trail, and the state that each of them changes.

Every route that is no GET stands in `AUDITED` or in `UNAUDITED` (unaudited.py).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock_core.acls.right import Operation
from penstock_core.groups.group import group_config_to_json
from penstock_core.ids import ZoneName, parse_group_name
from penstock_core.log.topic import config_to_json
from penstock_core.push.targets.target import target_to_json
from penstock_core.share.share_group import share_group_config_to_json
from penstock_handlers.edge.access.body_rights import (
    CheckBody,
    carries_for_share_group,
    carries_for_subscription,
    reads_its_topic,
    writes_its_target,
)
from penstock_handlers.edge.http import Event
from penstock_service.instance.instance import Instance
from penstock_service.push.find_subscription import find_subscription
from penstock_service.segments.move_zone import list_zones

State = dict[str, Any]
ReadState = Callable[[Instance, str], State]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRoute:
    """The action of a route, the kind of resource that it changes, and how to read that resource before.

    `right` is one on the topic of that name which the caller needs, where no path names it: without it, no note is
    taken. `check_body` asks for the rights on the topics that the body names. `parameter` is the part of the path that
    names the resource, empty where the `name` of body or query does. With `has_dry_run`, a body with `dry_run` changes
    nothing. Other routes take no such field, or ignore the body.
    """

    action: str
    kind: str
    parameter: str
    read: ReadState | None = None
    has_dry_run: bool = False
    right: Operation | None = None
    check_body: CheckBody | None = None

    def name(self, event: Event, body: Any) -> str:
        """The name of the resource, as far as the request tells one."""
        if self.parameter:
            return str((event.get("pathParameters") or {}).get(self.parameter, ""))
        if isinstance(body, Mapping):
            return str(body.get("name", ""))
        return str((event.get("queryStringParameters") or {}).get("name", ""))


def state_of_topic(instance: Instance, name: str) -> State:
    """Partitions and settings. One read. Raises UNKNOWN_TOPIC."""
    topic = instance.topic_cache.read_through(name)
    return {"topic_id": topic.topic_id, "partitions": topic.partitions, "config": config_to_json(topic.config)}


def state_of_log(instance: Instance, name: str) -> State:
    """The bounds of each partition. One read, and one for each 100 partitions."""
    from penstock_service.topics.describe_topic import describe_topic  # no function of binary requests truncates

    topic, bounds = describe_topic(instance.topic_cache, instance.stores.log, name)
    offsets = {str(each.partition): [each.log_start_offset, each.high_watermark] for each in bounds}
    return {"topic_id": topic.topic_id, "offsets": offsets}


def state_of_group(instance: Instance, name: str) -> State:
    """The settings of a group. One read."""
    state = instance.stores.memberships.get_group(parse_group_name(name))
    return {} if state is None else {"config": group_config_to_json(state.config), "members": state.member_count}


def state_of_share_group(instance: Instance, name: str) -> State:
    """Topics and settings. One read. Raises UNKNOWN_SHARE_GROUP."""
    group = instance.share_group_cache.read_through(name)
    return {
        "share_group_id": group.share_group_id,
        "topics": sorted(group.topics),
        "config": share_group_config_to_json(group.config),
    }


def state_of_subscription(instance: Instance, name: str) -> State:
    """Topics, target without its secret, and settings. One read. Raises UNKNOWN_SUBSCRIPTION."""
    found = find_subscription(instance, name)
    return {
        "subscription_id": found.subscription_id,
        "topics": sorted(found.topics),
        "target": target_to_json(found.target),
        "config": json.loads(json.dumps(asdict(found.config), default=dict)),
        "is_paused": found.is_paused,
    }


def state_of_zone(instance: Instance, name: str) -> State:
    """State and reason. One read."""
    state = dict(list_zones(instance)).get(ZoneName(name))
    return {} if state is None else {"state": state.status.value, "reason": state.reason}


def state_of_quota(instance: Instance, name: str) -> State:
    """The limits of the principal and of the topic with this name. One query."""
    return {str(quota.subject): quota.to_json() for quota in instance.stores.quotas.list() if quota.name == name}


AUDITED: Mapping[str, AuditedRoute] = {
    "POST /v1/topics": AuditedRoute(action="create_topic", kind="topic", parameter="", right=Operation.CREATE),
    "PATCH /v1/topics/{topic}": AuditedRoute(
        action="alter_topic", kind="topic", parameter="topic", read=state_of_topic
    ),
    "DELETE /v1/topics/{topic}": AuditedRoute(
        action="delete_topic", kind="topic", parameter="topic", read=state_of_topic
    ),
    "POST /v1/topics/{topic}/truncate": AuditedRoute(
        action="truncate_topic", kind="topic", parameter="topic", read=state_of_log
    ),
    "DELETE /v1/topics/{topic}/scheduled/{timer}": AuditedRoute(
        action="cancel_scheduled", kind="topic", parameter="topic"
    ),
    "POST /v1/topics/{topic}/redrive": AuditedRoute(
        action="redrive", kind="topic", parameter="topic", check_body=writes_its_target
    ),
    "PATCH /v1/groups/{group}": AuditedRoute(
        action="alter_group", kind="group", parameter="group", read=state_of_group
    ),
    "DELETE /v1/groups/{group}": AuditedRoute(
        action="delete_group", kind="group", parameter="group", read=state_of_group
    ),
    "POST /v1/groups/{group}/reset": AuditedRoute(
        action="reset_group", kind="group", parameter="group", has_dry_run=True, check_body=reads_its_topic
    ),
    "POST /v1/groups/{group}/offsets/delete": AuditedRoute(
        action="delete_offsets", kind="group", parameter="group", check_body=reads_its_topic
    ),
    "PUT /v1/share-groups/{group}": AuditedRoute(
        action="put_share_group",
        kind="share_group",
        parameter="group",
        read=state_of_share_group,
        check_body=carries_for_share_group,
    ),
    "DELETE /v1/share-groups/{group}": AuditedRoute(
        action="delete_share_group", kind="share_group", parameter="group", read=state_of_share_group
    ),
    "POST /v1/share-groups/{group}/reset": AuditedRoute(
        action="reset_share_group",
        kind="share_group",
        parameter="group",
        has_dry_run=True,
        check_body=reads_its_topic,
    ),
    "PUT /v1/subscriptions/{name}": AuditedRoute(
        action="put_subscription",
        kind="subscription",
        parameter="name",
        read=state_of_subscription,
        check_body=carries_for_subscription,
    ),
    "DELETE /v1/subscriptions/{name}": AuditedRoute(
        action="delete_subscription", kind="subscription", parameter="name", read=state_of_subscription
    ),
    "POST /v1/subscriptions/{name}/pause": AuditedRoute(
        action="pause_subscription", kind="subscription", parameter="name", read=state_of_subscription
    ),
    "POST /v1/subscriptions/{name}/resume": AuditedRoute(
        action="resume_subscription", kind="subscription", parameter="name", read=state_of_subscription
    ),
    "PUT /v1/quotas": AuditedRoute(action="put_quota", kind="quota", parameter="", read=state_of_quota),
    "DELETE /v1/quotas": AuditedRoute(action="delete_quota", kind="quota", parameter="", read=state_of_quota),
    "POST /v1/zones/{zone}": AuditedRoute(action="move_zone", kind="zone", parameter="zone", read=state_of_zone),
    "POST /v1/acls": AuditedRoute(action="change_acls", kind="service", parameter=""),
    "DELETE /v1/acls": AuditedRoute(action="delete_acl", kind="service", parameter=""),
    "POST /v1/producers/{transactional_id}/release": AuditedRoute(
        action="release_transactional_id", kind="transactional_id", parameter="transactional_id"
    ),
}
