"""The members of share groups that this gateway serves. The service knows no members: each one may read all partitions.

A member is a subscription and an epoch. The epoch rises with each change of its assignment. If another gateway gets its
heartbeat, or this one was started anew, the member is told to join again. It loses nothing by that.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from penstock.system import monotonic_ms
from penstock_core.limits import (
    CLIENT_ID_LENGTH_MAX,
    KAFKA_SHARE_MEMBER_MS_MAX,
    KAFKA_SHARE_MEMBERS_MAX,
    NAME_LENGTH_MAX,
    SHARE_TOPICS_MAX,
)
from penstock_kafka.errors import KafkaError, RequestRefused

Assignment = dict[str, tuple[str, int]]  # topic id -> its name, and how many partitions it has


@dataclass(slots=True, kw_only=True, eq=False)
class ShareMember:
    """A member of one group."""

    group: str
    member_id: str
    client_id: str = ""
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    assignment: Assignment = field(default_factory=dict)
    epoch: int = 0
    seen_ms: int = 0

    def assign(self, assignment: Assignment) -> bool:
        """Take the assignment. True if it is another one than before, or the first."""
        if assignment == self.assignment and self.epoch:
            return False
        self.assignment = assignment
        self.epoch += 1
        return True


class ShareMembers:
    """Members by group and id. `counts` tells how many each group has, for those who list groups."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._members: dict[tuple[str, str], ShareMember] = {}
        self._looking: asyncio.TimerHandle | None = None

    def find(self, group: str, member_id: str, epoch: int, now_ms: int) -> ShareMember:
        """The member that heartbeats. Raises RequestRefused: then it joins again."""
        member = self._members.get((group, member_id))
        if member is None or now_ms - member.seen_ms > KAFKA_SHARE_MEMBER_MS_MAX:
            raise RequestRefused(KafkaError.unknown_member_id, "this gateway does not know the member: join again")
        if epoch > member.epoch or epoch < member.epoch - 1:
            raise RequestRefused(KafkaError.fenced_member_epoch, f"epoch {epoch}: {member.epoch} is expected")
        return member

    def join(self, group: str, member_id: str, now_ms: int) -> ShareMember:
        """The member, new or again. Raises RequestRefused."""
        check_names(group, member_id)
        self.forget(group, member_id)
        if len(self._members) >= KAFKA_SHARE_MEMBERS_MAX:
            self._forget_gone(now_ms)
        if len(self._members) >= KAFKA_SHARE_MEMBERS_MAX:
            raise RequestRefused(
                KafkaError.group_max_size_reached,
                f"the gateway has {KAFKA_SHARE_MEMBERS_MAX:,} members of share groups",
            )
        member = self._members[group, member_id] = ShareMember(group=group, member_id=member_id)
        member.seen_ms = now_ms
        self._counts[group] += 1
        self._look_later()
        return member

    def forget(self, group: str, member_id: str) -> None:
        """The member has left."""
        if self._members.pop((group, member_id), None) is not None:
            self._counts[group] -= 1
            if not self._counts[group]:
                del self._counts[group]

    def of(self, group: str, now_ms: int) -> list[ShareMember]:
        """The members of a group."""
        self._forget_gone(now_ms)
        return [each for (name, _), each in self._members.items() if name == group]

    def _look_later(self) -> None:
        """Members that die without a goodbye are forgotten, also if no client asks for anything."""
        if self._looking is None and self._members:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(KAFKA_SHARE_MEMBER_MS_MAX / 1_000, self._look)

    def _look(self) -> None:
        self._looking = None
        self._forget_gone(monotonic_ms())
        self._look_later()

    def _forget_gone(self, now_ms: int) -> None:
        for (group, member_id), member in list(self._members.items()):
            if now_ms - member.seen_ms > KAFKA_SHARE_MEMBER_MS_MAX:
                self.forget(group, member_id)


def check_names(group: str, member_id: str) -> None:
    """Raises RequestRefused unless these may be the names of a group and of a member."""
    if not 0 < len(group) <= NAME_LENGTH_MAX:
        raise RequestRefused(KafkaError.invalid_group_id, f"the name of a group has 1 to {NAME_LENGTH_MAX} characters")
    if not 0 < len(member_id) <= CLIENT_ID_LENGTH_MAX:
        raise RequestRefused(
            KafkaError.invalid_request, f"the id of a member has 1 to {CLIENT_ID_LENGTH_MAX} characters"
        )


def checked_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    """The topics of a subscription. Raises RequestRefused if they are too many for a share group, or one is no name."""
    if len(topics) > SHARE_TOPICS_MAX:
        raise RequestRefused(KafkaError.invalid_request, f"{len(topics)} topics: {SHARE_TOPICS_MAX} at most")
    if any(len(each) > NAME_LENGTH_MAX for each in topics):
        raise RequestRefused(
            KafkaError.invalid_topic_exception, f"a topic's name has {NAME_LENGTH_MAX} characters at most"
        )
    return tuple(dict.fromkeys(topics))
