"""The rights on topics that the body of an audited change names: they are checked before its note is written.

The use cases check the same rights again, because what is there may change between the two. A body that a handler will
refuse for its form passes here: the handler says what is wrong with it. So does a redrive to where its records came
from, since only the records tell these topics.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock_core.acls.rule import Kind, Operation
from penstock_core.acls.rule_set import Access
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_group_name
from penstock_service.instance.instance import Instance
from penstock_service.push.subscriptions import find_subscription

T = TypeVar("T")
_BRING_RECORDS = ("cron", "time_zone", "topic", "record")  # the fields of a schedule
CheckBody = Callable[[Access, Instance, str, Mapping[str, Any]], None]
"""Takes the caller's rights, the instance, the name of the resource, and the body. Raises NOT_AUTHORIZED."""


def creates_its_topic(access: Access, _instance: Instance, name: str, _body: Mapping[str, Any]) -> None:
    """A creation names its topic in no path."""
    access.require(Operation.CREATE, Kind.TOPIC, name)


def reads_its_topic(access: Access, _instance: Instance, _name: str, body: Mapping[str, Any]) -> None:
    """A reset, or a deletion of offsets, tells where a topic's records are."""
    _require_named(access, Operation.READ, body.get("topic"))


def writes_its_target(access: Access, _instance: Instance, name: str, body: Mapping[str, Any]) -> None:
    """A redrive to a topic writes there, and one that drops letters deletes them."""
    _require_named(access, Operation.WRITE, body.get("to"))
    if body.get("drop") is True:
        access.require(Operation.DELETE, Kind.TOPIC, name)


def carries_for_share_group(access: Access, instance: Instance, name: str, body: Mapping[str, Any]) -> None:
    """Asks for the rights that `put_share_group` asks for. One read."""
    from penstock_service.share.admin.put_share_group import check_share_rights  # only the functions that put need it

    topics, config = body.get("topics"), body.get("config", {})
    if not _are_names(topics) or not isinstance(config, Mapping):
        return
    is_told, found = _if_there(lambda: instance.share_group_cache.read_through(name), ErrorCode.UNKNOWN_SHARE_GROUP)
    if is_told:
        check_share_rights(access, parse_group_name(name), found, topics, config)


def carries_for_subscription(access: Access, instance: Instance, name: str, body: Mapping[str, Any]) -> None:
    """Asks for the rights that `put_subscription` asks for. One read."""
    from penstock_service.push.admin.put_subscription import SubscriptionWish, check_push_rights

    topics, target = body.get("topics"), body.get("target")
    if not _are_names(topics) or not (target is None or isinstance(target, Mapping)):
        return
    is_told, found = _if_there(lambda: find_subscription(instance, name), ErrorCode.UNKNOWN_SUBSCRIPTION)
    if is_told:
        check_push_rights(access, name, found, SubscriptionWish(topics=topics, target=target, settings=body))


def comes_by_schedule(access: Access, instance: Instance, name: str, body: Mapping[str, Any]) -> None:
    """Asks for the rights that `put_schedule` asks for. One read."""
    from penstock_service.schedules.put_schedule import check_schedule_rights, find_schedule

    topic = body.get("topic")
    if topic is not None and not isinstance(topic, str):
        return
    is_told, found = _if_there(lambda: find_schedule(instance, name), ErrorCode.UNKNOWN_SCHEDULE)
    if is_told:
        brings = bool(body.get("enabled")) or any(body.get(each) is not None for each in _BRING_RECORDS)
        check_schedule_rights(access, name, found, topic, brings_records=brings)


def _if_there(read: Callable[[], T], unknown: ErrorCode) -> tuple[bool, T | None]:
    """The pair of True and what is there, if the read tells it. After any other failure, the handler meets it again."""
    try:
        return True, read()
    except PenstockError as error:
        return error.code is unknown, None


def _are_names(topics: Any) -> bool:
    return topics is None or (isinstance(topics, list) and all(isinstance(each, str) for each in topics))


def _require_named(access: Access, operation: Operation, topic: Any) -> None:
    if isinstance(topic, str):
        access.require(operation, Kind.TOPIC, topic)
