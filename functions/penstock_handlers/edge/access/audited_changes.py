"""What the note of an audited change tells: the kind of its resource, and the state before.

A route of `penstock_core.routes` with an `audit` leaves a trail. Its action finds here what the note needs beyond the
name of the resource, if it needs more.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock_core.groups.group import group_config_to_json
from penstock_core.ids import ZoneName, parse_group_name
from penstock_core.log.topic import config_to_json
from penstock_core.push.targets.target import target_to_json
from penstock_core.routes import Route
from penstock_core.share.share_group import share_group_config_to_json
from penstock_handlers.edge.access.body_rights import (
    CheckBody,
    carries_for_share_group,
    carries_for_subscription,
    comes_by_schedule,
    creates_its_topic,
    reads_its_topic,
    writes_its_target,
)
from penstock_handlers.edge.http import Event
from penstock_service.instance.instance import Instance
from penstock_service.push.subscriptions import find_subscription
from penstock_service.segments.move_zone import list_zones

State = dict[str, Any]
ReadState = Callable[[Instance, str], State]
_KINDS = {
    "topics": "topic",
    "groups": "group",
    "share-groups": "share_group",
    "subscriptions": "subscription",
    "schedules": "schedule",
    "quotas": "quota",
    "zones": "zone",
    "acls": "service",
    "producers": "transactional_id",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChange:
    """How to read the resource of a change before it.

    `check_body` asks for the rights that the body names: without them, no note is taken. With `has_dry_run`, a body
    with `dry_run` changes nothing. Other routes take no such field, or ignore the body.
    """

    read: ReadState | None = None
    has_dry_run: bool = False
    check_body: CheckBody | None = None


def kind_of(route: Route) -> str:
    """The kind of the resource that the route changes, by the first noun of its path."""
    return _KINDS[route.segments[2]]


def name_of(route: Route, event: Event, body: Any) -> str:
    """The name of the resource: of the path, or else of the body or the query, if the request tells one."""
    if route.parameter:
        return str((event.get("pathParameters") or {}).get(route.parameter, ""))
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


def state_of_schedule(instance: Instance, name: str) -> State:
    """Times, topic, and how large the record is: its bytes are no matter of the trail. One read.

    Raises UNKNOWN_SCHEDULE.
    """
    from penstock_service.schedules.put_schedule import find_schedule  # only the function of the route needs it

    found = find_schedule(instance, name)
    return {
        "schedule_id": found.schedule_id,
        "cron": found.times.cron,
        "time_zone": found.times.time_zone,
        "topic": found.topic,
        "record_bytes": found.record.size_bytes,
        "is_enabled": found.is_enabled,
    }


def state_of_zone(instance: Instance, name: str) -> State:
    """State and reason. One read."""
    state = dict(list_zones(instance)).get(ZoneName(name))
    return {} if state is None else {"state": state.status.value, "reason": state.reason}


def state_of_quota(instance: Instance, name: str) -> State:
    """The limits of the principal and of the topic with this name. One query."""
    found = [quota for quota in instance.stores.quotas.list() if quota.name == name]
    return {str(each.subject): {**each.to_json(), **({"shared": True} if each.is_shared else {})} for each in found}


_PLAIN = AuditedChange()
_CHANGES: Mapping[str, AuditedChange] = {
    "create_topic": AuditedChange(check_body=creates_its_topic),
    "alter_topic": AuditedChange(read=state_of_topic),
    "delete_topic": AuditedChange(read=state_of_topic),
    "promote_topic": AuditedChange(read=state_of_log),
    "resync_topic": AuditedChange(read=state_of_log),
    "truncate_topic": AuditedChange(read=state_of_log),
    "redrive": AuditedChange(check_body=writes_its_target),
    "alter_group": AuditedChange(read=state_of_group),
    "delete_group": AuditedChange(read=state_of_group),
    "reset_group": AuditedChange(has_dry_run=True, check_body=reads_its_topic),
    "delete_offsets": AuditedChange(check_body=reads_its_topic),
    "put_share_group": AuditedChange(read=state_of_share_group, check_body=carries_for_share_group),
    "delete_share_group": AuditedChange(read=state_of_share_group),
    "reset_share_group": AuditedChange(has_dry_run=True, check_body=reads_its_topic),
    "put_subscription": AuditedChange(read=state_of_subscription, check_body=carries_for_subscription),
    "delete_subscription": AuditedChange(read=state_of_subscription),
    "pause_subscription": AuditedChange(read=state_of_subscription),
    "resume_subscription": AuditedChange(read=state_of_subscription),
    "put_schedule": AuditedChange(read=state_of_schedule, check_body=comes_by_schedule),
    "delete_schedule": AuditedChange(read=state_of_schedule),
    "put_quota": AuditedChange(read=state_of_quota),
    "delete_quota": AuditedChange(read=state_of_quota),
    "move_zone": AuditedChange(read=state_of_zone),
}


def change_of(route: Route) -> AuditedChange:
    """What the note of the route needs."""
    return _CHANGES.get(route.audit, _PLAIN)
