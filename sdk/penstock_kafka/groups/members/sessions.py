"""Sessions of Kafka clients with the service: heartbeats, the end of a session, and members of other gateways.

The members that this gateway serves. It may forget one at any time: the service knows enough to go on with it.

The service's calls about groups, as the gateway makes them.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from penstock.api.calls import commit_offsets, committed_offsets, list_offsets
from penstock.api.group_admin_calls import delete_group, describe_group, list_groups, try_delete_offsets
from penstock.group.group_calls import HeartbeatRequest, HeartbeatResponse, beat
from penstock.http.async_client import AsyncClient
from penstock.http.steps import drive_async
from penstock.model import CommittedOffset, TopicPartition
from penstock.model.groups import Group, GroupDescription
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import unknown_member
from penstock_core.ids import GroupName, MemberName
from penstock_kafka.groups.members.member import KafkaMember, MemberNames, restored

_HEARTBEAT_TRIES = 4  # of one heartbeat that meets another one of its member, or a gateway with a clock ahead
_UNKNOWN = (ErrorCode.UNKNOWN_GROUP, ErrorCode.ACCESS_DENIED, ErrorCode.NOT_AUTHORIZED)
_ROUNDS_MAX = 8  # heartbeats that the service wants at once, for one request of a client
_LOG = logging.getLogger("penstock.kafka.groups")
_MEMBERS_MAX = 10_000


class GroupService:
    """Groups of one stack. Every method raises the service's PenstockError."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def heartbeat(self, group: str, body: Mapping[str, Any]) -> HeartbeatResponse:
        """One try. A repeat needs a body with a higher sequence."""
        request = HeartbeatRequest(body=body, sent_at_ms=0, session=0, claims=0)
        answer = await drive_async(beat(group, request), self._client.try_once)
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    async def commit(
        self, group: str, items: Sequence[Mapping[str, Any]], names: Mapping[str, str]
    ) -> dict[TopicPartition, PenstockError]:
        """The refused offsets, with the error of each. `names` has the member's, and is empty without a member."""
        return await self._client.call(commit_offsets(group, items, **names))

    async def committed(self, group: str, topics: Iterable[str] | None) -> dict[TopicPartition, CommittedOffset]:
        """The group's offsets, of some topics or of all (None). A topic that does not exist has none."""
        if topics is None:
            return await self._client.call(committed_offsets(group))
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic in dict.fromkeys(topics):
            try:
                found |= await self._client.call(committed_offsets(group, topic))
            except PenstockError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC:
                    raise
        return found

    async def offsets_at(self, topic: str, word: str) -> dict[int, int]:
        """The "latest" or "earliest" offsets of a topic, by partition. A topic that does not exist has none."""
        try:
            found = await self._client.call(list_offsets(topic, word))
        except PenstockError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.INVALID_NAME):
                raise
            return {}
        return {number: at.offset for number, at in found.items() if at is not None}

    async def describe(self, group: str) -> GroupDescription:
        """The group, its members and partitions."""
        return await self._client.call(describe_group(group))

    async def groups(self) -> list[Group]:
        """All groups that the caller may see."""
        return await self._client.call(list_groups())

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        await self._client.call(delete_group(group))

    async def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> dict[int, PenstockError]:
        """Delete the group's offsets in these partitions, which none of its members reads. The errors of some."""
        outcomes = await self._client.call(try_delete_offsets(group, topic, partitions))
        return {each: outcome for each, outcome in outcomes.items() if isinstance(outcome, PenstockError)}


class Sessions:
    """The members of a gateway, and their heartbeats. `now_ms` is the wall clock: sequences come from it."""

    def __init__(self, service: GroupService, now_ms: Callable[[], int]) -> None:
        self.service = service
        self.book = MemberBook()
        self.now_ms = now_ms
        self._locks: WeakKeyDictionary[KafkaMember, asyncio.Lock] = WeakKeyDictionary()

    async def find(self, names: MemberNames, generation: int) -> KafkaMember:
        """The member: one that this gateway serves, or one that another gateway has served until now.

        A client that names a newer generation than this gateway knows has been elsewhere since. The group's description
        costs more than a heartbeat, but only the first request of a client pays it. Raises UNKNOWN_MEMBER, and
        MEMBER_FENCED if another process has the instance id.
        """
        member = self.book.find(names.group, names.member_id)
        if member is not None and generation > member.generation >= 0:
            self.book.forget(member)
            member = None
        return member or await self._take_over(names, generation)

    async def beat(self, member: KafkaMember, config: Mapping[str, Any] | None = None) -> HeartbeatResponse:
        """One heartbeat of the member to the service, and its answer taken. A member has one on its way at a time.

        Raises UNKNOWN_MEMBER and MEMBER_FENCED, and then forgets the member; or what the service raises.
        """
        async with self._locks.setdefault(member, asyncio.Lock()):
            return await self._beat(member, config or {})

    async def catch_up(self, member: KafkaMember, held: Collection[TopicPartition] | None = None) -> None:
        """Heartbeats until the service wants none at once. `held` has what the client has heard of, None for `told`."""
        for _ in range(_ROUNDS_MAX):
            answer = await self.beat(member)
            member.release_unheard(member.told if held is None else held)
            if answer.is_complete or answer.heartbeat_after_ms > 0:
                return

    async def is_newest(self, member: KafkaMember) -> bool:
        """True if the last heartbeat of the member came from here: no other gateway has let its client join since.

        It reads the group's description.
        """
        description = await self._describe(member.names)
        return any(
            each.member_id == member.names.member_id and each.sequence == member.sequence
            for each in description.members
        )

    async def leave(self, member: KafkaMember) -> None:
        """The member leaves the group. A member that the service does not know has left."""
        self.book.forget(member)
        try:
            await self.service.heartbeat(member.names.group, member.leave_body(self.now_ms()))
        except PenstockError as error:
            if error.code is not ErrorCode.STALE_HEARTBEAT:
                raise
            await self._learn_sequence(member)
            await self.service.heartbeat(member.names.group, member.leave_body(self.now_ms()))
        self.book.hurry(member.names.group, member)

    async def _beat(self, member: KafkaMember, config: Mapping[str, Any]) -> HeartbeatResponse:
        for attempt in range(_HEARTBEAT_TRIES):
            try:
                answer = await self.service.heartbeat(member.names.group, member.heartbeat_body(self.now_ms(), config))
            except PenstockError as error:
                await self._recover(member, error, is_last=attempt == _HEARTBEAT_TRIES - 1)
            else:
                member.answered(answer, self.now_ms())
                return answer
        raise AssertionError("the last try returns or raises")

    async def _take_over(self, names: MemberNames, generation: int) -> KafkaMember:
        description = await self._describe(names)
        known = self.book.find(names.group, names.member_id)  # another request of the client was faster
        if known is not None:
            return known
        found = next((each for each in description.members if each.member_id == names.member_id), None)
        if found is None:
            if names.instance_id and any(each.instance_id == names.instance_id for each in description.members):
                raise PenstockError(
                    ErrorCode.MEMBER_FENCED, f"another process has joined as instance {names.instance_id}"
                )
            raise _unknown(names)
        member = restored(names.group, found, description.partitions, generation)
        self.book.remember(member)
        _LOG.info("group %s: member %s comes from another gateway", names.group, names.member_id)
        return member

    async def _describe(self, names: MemberNames) -> GroupDescription:
        """The group as the service knows it. Without it, or the right to it, the member is unknown: it joins anew."""
        try:
            return await self.service.describe(names.group)
        except PenstockError as error:
            if error.code in _UNKNOWN:
                raise _unknown(names) from error
            raise

    async def _recover(self, member: KafkaMember, error: PenstockError, *, is_last: bool) -> None:
        """Make the next try possible, or raise."""
        if error.code in (ErrorCode.UNKNOWN_MEMBER, ErrorCode.MEMBER_FENCED):
            self.book.forget(member)
            raise error
        if is_last:
            raise error
        if error.code is ErrorCode.STALE_HEARTBEAT:
            await self._learn_sequence(member)
        elif error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise error

    async def _learn_sequence(self, member: KafkaMember) -> None:
        """Take the sequence that the service knows. Another gateway's clock may be ahead of this one's."""
        names = member.names
        description = await self._describe(names)
        found = next((each for each in description.members if each.member_id == names.member_id), None)
        if found is None:
            self.book.forget(member)
            raise _unknown(names)
        member.sequence = max(member.sequence, found.sequence)


def _unknown(names: MemberNames) -> PenstockError:
    return unknown_member(GroupName(names.group), MemberName(names.member_id))


class MemberBook:
    """Members by group and member id, `_MEMBERS_MAX` at most."""

    def __init__(self) -> None:
        self._members: OrderedDict[tuple[str, str], KafkaMember] = OrderedDict()

    def find(self, group: str, member_id: str) -> KafkaMember | None:
        """The member, if the gateway serves it."""
        member = self._members.get((group, member_id))
        if member is not None:
            self._members.move_to_end((group, member_id))
        return member

    def remember(self, member: KafkaMember) -> None:
        """Serve this member, in place of one of the same id."""
        self._members[member.names.group, member.names.member_id] = member
        while len(self._members) > _MEMBERS_MAX:
            self._members.popitem(last=False)

    def forget(self, member: KafkaMember) -> None:
        """Serve it no more. Another object of the same id stays."""
        key = (member.names.group, member.names.member_id)
        if self._members.get(key) is member:
            del self._members[key]

    def twin_of(self, names: MemberNames) -> KafkaMember | None:
        """The member of the same instance and another id, None without an instance."""
        twins = (
            member
            for (name, _), member in self._members.items()
            if name == names.group and member.names.instance_id == names.instance_id
        )
        found = (each for each in twins if each.names.member_id != names.member_id)
        return None if names.instance_id is None else next(found, None)

    def is_idle(self, group: str) -> bool:
        """True if this gateway serves no client of the group that was told an assignment."""
        return all(name != group or member.generation < 0 for (name, _), member in self._members.items())

    def hurry(self, group: str, but: KafkaMember) -> None:
        """Let the other members of the group ask the service with their next heartbeat: something has changed."""
        for (name, _), member in self._members.items():
            if name == group and member is not but:
                member.due_ms = 0
