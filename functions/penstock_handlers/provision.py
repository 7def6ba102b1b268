"""The function `provision`: makes, alters and deletes what a template declares (docs/adr/0044).

A resource that is there already is taken over and altered, and the stack never deletes it. One that the stack has made
is deleted with it only where the template says so. Its id, behind a slash, is in the resource's id: a topic that an
operator has made anew under the name is not the stack's.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock_core.acls.rule import ALLOW, Rule, parse_rule
from penstock_core.acls.rule_set import OUTSIDE
from penstock_core.acls.tokens import full_principal, trusted_principal
from penstock_core.audit.audit_entry import Caller
from penstock_core.errors import Category, ErrorCode, PenstockError, shown
from penstock_core.log.topic import check_declared_topic
from penstock_core.push.subscription import check_declared_subscription
from penstock_core.push.targets.target import parse_target
from penstock_core.quotas.quota import Subject, parse_quota
from penstock_core.share.share_group import check_declared_group
from penstock_core.text import parse_json
from penstock_handlers.edge.access.audited_changes import (
    state_of_quota,
    state_of_schedule,
    state_of_share_group,
    state_of_subscription,
    state_of_topic,
)
from penstock_handlers.edge.custom_resource import Change, Settled, custom_resource_entry_point
from penstock_handlers.edge.fields import whole_number
from penstock_handlers.edge.models.schedule_models import PutSchedule
from penstock_service.acls.change_acls import change_acls
from penstock_service.audit.note_change import Change as Trail
from penstock_service.audit.note_change import audited
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import CloudFormation
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.push.subscriptions import find_subscription
from penstock_service.quotas.admin.set_quota import delete_declared_quota, put_quota
from penstock_service.schedules.put_schedule import ScheduleWish, delete_schedule, find_schedule, put_schedule
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import delete_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic

DESTROY = "destroy"
ACLS = "Custom::PenstockAcls"
QUOTA = "Custom::PenstockQuota"
_ACLS_ID = "acls/"
_ROLE_WAITS_MS = (2_000, 5_000, 8_000, 12_000)  # IAM shows a role's new policy some seconds later


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of resource. `check` refuses properties with all their mistakes, and reads nothing.

    `find` answers the id of the resource with a name, or None. `put` makes or alters it. The audit trail has `noun` and
    what `read` answers.
    """

    noun: str
    read: Callable[[Instance, str], dict[str, Any]]

    check: Callable[[Change], object]
    find: Callable[[Instance, str], str | None]
    put: Callable[[Change, Instance, CloudFormation], None]
    delete: Callable[[Instance, str], object]


def settle(change: Change, to: Instance, stack: CloudFormation) -> Settled:
    """Does what the event asks for. It may be repeated, and finds its own work done."""
    if change.resource_type == ACLS:
        return _settle_acls(change, to)
    if change.resource_type == QUOTA:
        return _settle_quota(change, to)
    if change.request_type == "Delete":
        return _delete(change, to)
    kind = KINDS[change.resource_type]
    name = _text(change.properties, "Name")
    kind.check(change)
    found = kind.find(to, name)
    trail = Trail(action=f"put_{kind.noun}", kind=kind.noun, name=name, before=_state(kind, to, name))
    audited(to, _caller(change), trail, lambda: kind.put(change, to, stack), lambda _: _state(kind, to, name))
    own_id = found or kind.find(to, name) or ""
    attributes = {"Name": name, "Id": own_id}
    if found is None:
        return Settled(resource_id=f"{name}/{own_id}", attributes=attributes)
    is_kept = change.resource_id is not None and change.old_properties.get("Name") == name
    return Settled(resource_id=str(change.resource_id) if is_kept else name, attributes=attributes)


def _settle_acls(change: Change, to: Instance) -> Settled:
    """Adds the rules, and releases those that the resource had before. A rule goes with the last that declares it.

    A resource of a release up to 0.1.0 has another id, and no owner: it releases what operators and its like have made.
    """
    own, old = _owner(change), change.resource_id or ""
    owner = OUTSIDE if old.startswith(_ACLS_ID) and "." not in old else own
    is_deleted = change.request_type == "Delete"
    tokens = to.acl_cache.settings.tokens
    added = [] if is_deleted else _rules(change.properties, lambda name: trusted_principal(name, tokens))
    had = change.properties if is_deleted else change.old_properties
    removed: list[Rule] = []
    # Up to 0.1.0 a rule for `jwt:alice` was stored without the issuer, and matched no caller.
    for principal_of in (str, lambda name: full_principal(name, tokens)) if had else ():
        with suppress(PenstockError):  # they were never added, and a rollback must not fail
            removed += _rules(had, principal_of)
    removed = [rule for rule in removed if rule not in added]
    change_acls(to, added, removed, owner=owner)
    return Settled(resource_id=old or f"{_ACLS_ID}{own}", attributes={})


def _settle_quota(change: Change, to: Instance) -> Settled:
    """Sets the quota, unless somebody outside of this stack has set it. It goes with the resource that set it last.

    So a resource takes no quota along that an operator, or another resource, has set: CloudFormation deletes the old
    resource after it has made the new one, and also one whose making has failed.
    """
    own = _owner(change)
    if change.request_type == "Delete":
        _delete_quota(change, to, own)
        return Settled(resource_id=change.resource_id or "", attributes={})
    subject, limits = _text(change.properties, "Subject"), _object(change.properties, "Limits")
    name, is_shared = _text(change.properties, "Name"), change.properties.get("Shared") == "true"
    if subject == Subject.PRINCIPAL:
        name = trusted_principal(name, to.acl_cache.settings.tokens)
    name = parse_quota(subject, name, limits, is_shared=is_shared).name
    is_known = change.resource_id == f"quota/{subject}/{name}"  # an operator's change of it since is taken back
    over = "" if is_known else f"{own.partition('.')[0]}."
    trail = _quota_trail("put_quota", to, name)
    audited(
        to,
        _caller(change),
        trail,
        lambda: put_quota(to, subject, name, limits, is_shared=is_shared, declared_by=own, over=over),
        lambda _: state_of_quota(to, name),
    )
    return Settled(resource_id=f"quota/{subject}/{name}", attributes={"Name": name})


def _owner(change: Change) -> str:
    """The resource by its stack and its logical id: two hashes with a dot between them."""
    return ".".join(hashlib.sha256(each.encode()).hexdigest()[:16] for each in (change.stack_id, change.logical_id))


def _delete_quota(change: Change, to: Instance, own: str) -> None:
    """Deletes the quota if this resource has set it last. The id of one that was never made names none."""
    kind, _, place = (change.resource_id or "").partition("/")
    subject, _, name = place.partition("/")
    if kind != "quota" or subject not in set(Subject):
        return
    trail = _quota_trail("delete_quota", to, name)
    audited(to, _caller(change), trail, lambda: delete_declared_quota(to, subject, name, own), lambda _: None)


def _quota_trail(action: str, to: Instance, name: str) -> Trail:
    return Trail(action=action, kind="quota", name=name, before=state_of_quota(to, name))


def _rules(properties: Mapping[str, Any], principal_of: Callable[[str], str]) -> list[Rule]:
    text = _text(properties, "Rules")
    try:
        return [
            parse_rule(
                principal_of(each["principal"]), each["operation"], each["resource"], each.get("permission", ALLOW)
            )
            for each in parse_json(text)
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _wrong("Rules", text, "a JSON array of rules") from error


def _delete(change: Change, to: Instance) -> Settled:
    """Reads nothing but the id, unless there is something to delete: a rollback must not fail by wrong properties."""
    resource_id = change.resource_id or ""
    name, _, own_id = resource_id.rpartition("/")
    if name and change.properties.get("OnDelete") == DESTROY:
        kind = KINDS[change.resource_type]
        if kind.find(to, name) == own_id:
            trail = Trail(action=f"delete_{kind.noun}", kind=kind.noun, name=name, before=_state(kind, to, name))
            audited(to, _caller(change), trail, lambda: kind.delete(to, name), lambda _: None)
    return Settled(resource_id=resource_id, attributes={})


def _state(kind: Kind, to: Instance, name: str) -> dict[str, Any] | None:
    """The resource as the audit trail has it, None if it is not there, or cannot be read."""
    try:
        return kind.read(to, name)
    except PenstockError:
        return None


def _caller(change: Change) -> Caller:
    """CloudFormation, in the name of the stack."""
    return Caller(principal=change.stack_id, address="cloudformation.amazonaws.com", request_id=change.request_id)


def _check_topic(change: Change) -> None:
    properties = change.properties
    check_declared_topic(_text(properties, "Name"), _partitions(properties), _settings(properties))


def _find_topic(to: Instance, name: str) -> str | None:
    return _id_or_none(lambda: to.topic_cache.read_through(name).topic_id)


def _put_topic(change: Change, to: Instance, stack: CloudFormation) -> None:
    name, settings = _text(change.properties, "Name"), _settings(change.properties)
    partitions = _partitions(change.properties)
    if _find_topic(to, name) is None:
        create_topic(to, name, partitions, settings)
        return
    had = to.topic_cache.get(name).writable_partitions
    if partitions < had and change.request_type == "Update" and stack.is_rolling_back(change.stack_id):
        partitions = had  # the update that is taken back has added partitions, and they stay
    if partitions < had and change.request_type == "Create":
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{partitions} partitions: topic {name!r} is there already. Declare it with {had}, and with fewer later",
        )
    alter_topic(to, name, partitions, _changed(change, settings))


def _check_share_group(change: Change) -> None:
    _topics(change.properties)
    check_declared_group(_text(change.properties, "Name"), _settings(change.properties))


def _find_share_group(to: Instance, name: str) -> str | None:
    return _id_or_none(lambda: to.share_group_cache.read_through(name).share_group_id)


def _put_share_group(change: Change, to: Instance, _stack: CloudFormation) -> None:
    settings = _changed(change, _settings(change.properties))
    put_share_group(to, _text(change.properties, "Name"), _topics(change.properties), settings)


def _check_subscription(change: Change) -> None:
    _topics(change.properties)
    parse_target(_object(change.properties, "Target"))
    check_declared_subscription(_text(change.properties, "Name"), _settings(change.properties))


def _find_subscription(to: Instance, name: str) -> str | None:
    return _id_or_none(lambda: find_subscription(to, name).subscription_id)


def _put_subscription(change: Change, to: Instance, _stack: CloudFormation) -> None:
    wish = SubscriptionWish(
        topics=_topics(change.properties),
        target=_object(change.properties, "Target"),
        settings=_changed(change, _settings(change.properties)),
    )
    waits_ms = _ROLE_WAITS_MS if "stage" in (wish.target or {}) else ()
    for wait_ms in waits_ms:
        try:
            put_subscription(to, _text(change.properties, "Name"), wish)
        except PenstockError as error:
            if error.code is not ErrorCode.ACCESS_DENIED:
                raise
            to.clock.sleep_ms(wait_ms)
        else:
            return
    put_subscription(to, _text(change.properties, "Name"), wish)


def _schedule_wish(change: Change) -> ScheduleWish:
    """The schedule of the template, which is enabled: a disabled one that an operator has left runs again."""
    properties = change.properties
    names = {"cron": "Cron", "time_zone": "TimeZone", "topic": "Topic"}
    document = {field: _text(properties, name) for field, name in names.items()}
    record = _object(properties, "Record")
    try:
        return PutSchedule.model_validate({**document, "record": record, "enabled": True}).wish()
    except ValueError as error:
        raise _wrong("Record", properties.get("Record"), "a JSON object with key, value and headers") from error


def _find_schedule(to: Instance, name: str) -> str | None:
    return _id_or_none(lambda: find_schedule(to, name).schedule_id)


def _put_schedule(change: Change, to: Instance, _stack: CloudFormation) -> None:
    put_schedule(to, _text(change.properties, "Name"), _schedule_wish(change))


KINDS: Mapping[str, Kind] = {
    "Custom::PenstockTopic": Kind(
        noun="topic",
        read=state_of_topic,
        check=_check_topic,
        find=_find_topic,
        put=_put_topic,
        delete=delete_topic,
    ),
    "Custom::PenstockShareGroup": Kind(
        noun="share_group",
        read=state_of_share_group,
        check=_check_share_group,
        find=_find_share_group,
        put=_put_share_group,
        delete=delete_share_group,
    ),
    "Custom::PenstockSubscription": Kind(
        noun="subscription",
        read=state_of_subscription,
        check=_check_subscription,
        find=_find_subscription,
        put=_put_subscription,
        delete=delete_subscription,
    ),
    "Custom::PenstockSchedule": Kind(
        noun="schedule",
        read=state_of_schedule,
        check=_schedule_wish,
        find=_find_schedule,
        put=_put_schedule,
        delete=delete_schedule,
    ),
}


def _id_or_none(read: Callable[[], str]) -> str | None:
    try:
        return read()
    except PenstockError as error:
        if error.code.category is not Category.NOT_FOUND:
            raise
        return None


def _changed(change: Change, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and None for each that the template does not have any more: it goes back to its default."""
    is_same = change.old_properties.get("Name") == change.properties["Name"]
    dropped = _settings(change.old_properties).keys() - settings.keys() if is_same else ()
    return {**dict.fromkeys(dropped), **settings}


def _text(properties: Mapping[str, Any], name: str) -> str:
    value = properties.get(name)
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def _topics(properties: Mapping[str, Any]) -> list[str]:
    value = properties.get("Topics")
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong("Topics", value, "a list of names")
    return value


def _partitions(properties: Mapping[str, Any]) -> int:
    """The number that comes as a string. Raises INVALID_REQUEST for other text."""
    text = str(properties.get("Partitions", "1"))
    number = whole_number(text)
    if number is None:
        raise _wrong("Partitions", text, "a whole number")
    return number


def _settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    return _object({"Config": "{}", **properties}, "Config")


def _object(properties: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object, as one text of JSON: CloudFormation would make strings of its numbers."""
    text = _text(properties, name)
    try:
        found = parse_json(text)
    except ValueError as error:
        raise _wrong(name, text, f"JSON ({error})") from error
    if not isinstance(found, dict):
        raise _wrong(name, text, "a JSON object")
    return found


def _wrong(name: str, value: object, wanted: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, f"the property {name} is {shown(value)}: it must be {wanted}")


handler = custom_resource_entry_point(settle)
