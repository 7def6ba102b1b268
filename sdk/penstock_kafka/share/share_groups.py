"""The share groups of the service, as the gateway knows them: it creates one that a member names, as Kafka does.

The group's topics are those that any of its members ever asked for, without those that were deleted since. A member
that asks for another topic adds it. Two gateways that add topics at the same time may overwrite each other. The next
heartbeat of a member whose topic is missing adds it again, and the group's state in the topic is still there.

The service binds a group to the ids of its topics. A topic that was deleted and made anew is bound again, when a member
asks for it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api.calls import pages
from penstock.api.share_group_calls import create_share_group, share_group_path
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model.fields import value_of
from penstock.model.share import ShareGroup
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_LOCK_MS_DEFAULT
from penstock_kafka.context import Context
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.service import Service

_AGE_MS_MAX = 10_000
_KNOWN_MAX = 10_000
_DENIED = (ErrorCode.ACCESS_DENIED, ErrorCode.NOT_AUTHORIZED)
_BY_KEY = "key"

_log = logging.getLogger("penstock.kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    group: ShareGroup | None  # None: the gateway may not look
    at_ms: int


class ShareGroups:
    """Groups by name, ten seconds old at most. `start` is where a group begins that the gateway creates."""

    def __init__(self, service: Service, *, start: str) -> None:
        self._service = service
        self._start = start
        self._known: dict[str, _Known] = {}
        self._bound: dict[str, frozenset[str]] = {}  # by group, ids of topics that it surely reads
        self._begins_with: dict[str, Mapping[str, Any]] = {}  # settings of groups that do not exist yet

    async def ensure(self, name: str, topics: Mapping[str, str]) -> None:
        """Let the group exist, and have these topics, each with its id.

        One description of the group for topics that are new to this gateway. Raises PenstockError, RequestRefused
        without the rights.
        """
        if not topics:
            return
        try:
            group = await self._look(name)
            if group is None or await self._reads(group, topics):
                return
            known = await self._that_exist(group.topics)  # in the order of their priority, if they have one
            await self._put(name, [*dict.fromkeys((*known, *sorted(topics)))], is_new=False)
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_SHARE_GROUP:
                raise
            await self._put(name, sorted(topics), is_new=True)
        self._remember_bound(name, topics.values())

    async def lock_ms(self, name: str) -> int:
        """The time that the group locks records for, if it is known."""
        group = await self._seen(name)
        return SHARE_LOCK_MS_DEFAULT if group is None else int(group.config.get("lock_ms") or SHARE_LOCK_MS_DEFAULT)

    async def may_be_by_key(self, name: str) -> bool:
        """The group orders records by their keys, or the gateway cannot know."""
        group = await self._seen(name)
        return group is None or group.config.get("ordering") == _BY_KEY

    def begin_with(self, name: str, config: Mapping[str, Any]) -> None:
        """Keep settings for a group that does not exist yet, until a member makes it here."""
        if len(self._begins_with) >= _KNOWN_MAX:
            self._begins_with.clear()
        self._begins_with[name] = {**self._begins_with.get(name, {}), **config}

    async def config_of(self, name: str) -> Mapping[str, Any]:
        """The settings of the group, or those that it will begin with. Raises what the service raises."""
        try:
            group = await self._look(name)
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_SHARE_GROUP:
                raise
            return self._begins_with.get(name, {})
        return {} if group is None else group.config

    def forget(self, name: str) -> None:
        """The group has changed, or is gone."""
        self._known.pop(name, None)
        self._bound.pop(name, None)

    async def _seen(self, name: str) -> ShareGroup | None:
        try:
            return await self._look(name)
        except PenstockError:
            return None

    async def _look(self, name: str) -> ShareGroup | None:
        known = self._known.get(name)
        if known is None or monotonic_ms() - known.at_ms > _AGE_MS_MAX:
            try:
                group: ShareGroup | None = await self._service.call(_share_group(name))
            except PenstockError as error:
                self.forget(name)
                if error.code is not ErrorCode.ACCESS_DENIED:
                    raise
                group = None  # IAM does not allow the route; whoever may read a group by access rules may look at it
            known = self._remember(name, group)
        return known.group

    async def _reads(self, group: ShareGroup, topics: Mapping[str, str]) -> bool:
        """The group reads all of these, and none of them as it was before it was made anew."""
        if not set(topics) <= set(group.topics):
            return False
        if not {*topics.values()} <= self._bound.get(group.group, frozenset()):
            self._remember_bound(group.group, await self._service.call(_bound_topics(group.group)))
        return {*topics.values()} <= self._bound[group.group]

    async def _that_exist(self, topics: Iterable[str]) -> list[str]:
        found = []
        for name in topics:
            try:
                await self._service.topics.topic(name)
            except PenstockError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC:
                    continue
            found.append(name)
        return found

    async def _put(self, name: str, topics: Sequence[str], *, is_new: bool) -> None:
        begin = {own: each for own, each in self._begins_with.get(name, {}).items() if each is not None}
        config = {"start": self._start, **begin} if is_new else {}
        try:
            self._remember(name, await self._service.call(create_share_group(name, topics, config)))
            self._begins_with.pop(name, None)
        except PenstockError as error:
            self.forget(name)
            if error.code not in _DENIED:
                raise
            what = "does not exist" if is_new else f"does not read all of {', '.join(sorted(topics))}"
            raise RequestRefused(
                KafkaError.group_authorization_failed,
                f"share group {name} {what}, and the gateway has not the right to change that: "
                f"`penstock share-groups create {name}` makes it ({error})",
            ) from error
        if is_new:
            _log.info("share group %s was created: it starts at the %s records", name, config["start"])

    def _remember(self, name: str, group: ShareGroup | None) -> _Known:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        known = self._known[name] = _Known(group=group, at_ms=monotonic_ms())
        return known

    def _remember_bound(self, name: str, topic_ids: Iterable[str]) -> None:
        if len(self._bound) >= _KNOWN_MAX:
            self._bound.clear()
        self._bound[name] = frozenset(topic_ids)


def open_share_groups(context: Context) -> ShareGroups:
    """The share groups of this gateway, which the rooms of share groups and of settings share."""
    return context.share(ShareGroups, lambda: ShareGroups(context.service, start=context.settings.share_start))


def _bound_topics(name: str) -> Calls[frozenset[str]]:
    """The ids of the group's topics, without those that are gone. One request per page."""
    found = yield from pages(share_group_path(name))
    return frozenset(each["topic_id"] for page in found for each in page["partitions"])


def _share_group(name: str) -> Calls[ShareGroup]:
    """The group without its partitions, but one."""
    return value_of(ShareGroup, (yield json_request("GET", share_group_path(name), query={"limit": "1"})))
