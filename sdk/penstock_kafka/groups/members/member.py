"""A Kafka client as a member of one of our groups: what the client holds, was told, and must be told. No I/O, no clock.

The service assigns partitions and grants leases (docs/adr/0009). The gateway keeps, for each client that it serves:

| set       | the partitions                                                                              |
|-----------|---------------------------------------------------------------------------------------------|
| `leases`  | for which the member may commit: each was granted to it in this session                     |
| `claimed` | that the client may be reading, or was promised: the heartbeats name them as held           |
| `told`    | of the client's last assignment                                                             |

`known` has the last offset of each lease that the gateway has seen, at the grant or by its own commit.

A client has to be told anew once `assignment`, which is `claimed` without those that the service wants back, is another
one than `told`. A classic client is told by a rebalance, and names what it keeps when it joins again.

Nothing here must survive the gateway. Another one finds `leases` and the session in the group's description
(`restored`). It knows a `claimed` that may be too large, so it tells the client anew at once.

Member ids as Kafka's clients draw them, and as the service takes them: with no letters but those of names.

librdkafka's ids are base64 with `+` and `/`. Each letter that a name cannot have becomes a dot and its two hexadecimal
digits, and a dot too. So two ids stay two.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.group.group_calls import HeartbeatResponse, HeldLease
from penstock.model import TopicPartition
from penstock.model.groups import GroupMember, GroupPartition
from penstock_core.groups.group import Subscription
from penstock_core.limits import MEMBER_ID_LENGTH_MAX
from penstock_kafka.errors import KafkaError, RequestRefused

_MINUTE_MS = 60_000
_GENERATIONS_BEGIN_MIN = 1_577_836_800 // 60  # 2020-01-01
_OTHER = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"\.([0-9a-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberNames:
    """The names by which the service knows a member."""

    group: str
    member_id: str
    instance_id: str | None = None
    client_id: str = ""


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class KafkaMember:
    """One member. `generation` is what Kafka calls a generation, or a member epoch: it rises with each assignment.

    Its numbers are minutes since 2020, at least one above the last that the gateway has heard of. The service never
    sees them: leases fence commits there. They stay below 2^24 until 2051: librdkafka 2.16 reads a member id up to the
    first zero byte, which is the first byte of the epoch behind it.

    `protocol` is the assignor that a classic client has named first. `owned` has what a client of the newer protocol
    said last that it holds, None before. `is_untold`: the client may not know its assignment. `joins` counts the
    JoinGroup requests: the newest one goes on. `session_timeout_ms` is what the client asked for, None for the group's.
    `looks_at_topics`: the next heartbeat lets the group look at its topics. `looked_ms` is when the gateway last
    compared them with what it has heard of topics.

    `gone` is that of the connection by which a client of the newer protocol came last. `ends_ms` is the end of the
    session, by what this gateway knows.

    `expression` is the regular expression of a client of the newer protocol, "" without one, `matched` the one whose
    names it is subscribed to, and `topics` are the names that it gave itself.
    """

    names: MemberNames
    subscription: Subscription | None = None
    subscription_known: Subscription | None = None
    sequence: int = 0
    epoch: int = 0
    session: int = 0
    generation: int = -1
    leases: dict[TopicPartition, HeldLease] = field(default_factory=dict)
    known: dict[TopicPartition, int | None] = field(default_factory=dict)
    claimed: set[TopicPartition] = field(default_factory=set)
    wanted_back: frozenset[TopicPartition] = frozenset()
    told: frozenset[TopicPartition] = frozenset()
    told_in: dict[TopicPartition, int] = field(default_factory=dict)
    is_complete: bool = False
    is_untold: bool = False
    is_classic: bool = True
    protocol: str = ""
    owned: frozenset[TopicPartition] | None = None
    joins: int = 0
    due_ms: int = 0
    ends_ms: int = 0
    heartbeat_after_ms: int = 0
    session_timeout_ms: int | None = None
    looks_at_topics: bool = False
    looked_ms: int = 0
    gone: asyncio.Event | None = None
    topics: tuple[str, ...] = ()
    expression: str = ""
    matched: str = ""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the client is to have."""
        return frozenset(self.claimed - self.wanted_back)

    @property
    def must_be_told(self) -> bool:
        """True if the client has another assignment than it should, or holds more than it was told."""
        return self.is_untold or self.claimed != self.told or bool(self.wanted_back)

    def heartbeat_body(self, now_ms: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """The service's heartbeat request. Raises the sequence: each body is sent once."""
        self.sequence = max(now_ms, self.sequence + 1)
        body = {**self._identity(), "sequence": self.sequence, "epoch": self.epoch, "client_id": self.names.client_id}
        if self.session_timeout_ms is not None:
            body["session_timeout_ms"] = self.session_timeout_ms
        if self.session == 0 or self.subscription != self.subscription_known:
            subscription = self.subscription or Subscription()
            body["subscription"] = {"topics": [*subscription.topics], "patterns": [*subscription.patterns]}
        if self.session == 0:
            return {**body, "config": dict(config)}
        body["session"] = self.session
        if self.looks_at_topics:
            body["looks_at_topics"] = True
        if not self.is_complete or "subscription" in body:
            body["owned"] = self._owned()
        return body

    def leave_body(self, now_ms: int) -> dict[str, Any]:
        """The request by which the member leaves."""
        self.sequence = max(now_ms, self.sequence + 1)
        return {**self._identity(), "sequence": self.sequence, "epoch": self.epoch, "leave": True}

    def answered(self, answer: HeartbeatResponse, now_ms: int) -> None:
        """Take the service's answer to the last heartbeat."""
        self.epoch, self.session = answer.epoch, answer.service_session
        self.subscription_known = self.subscription
        self.is_complete = answer.is_complete
        self.heartbeat_after_ms, self.looks_at_topics = answer.heartbeat_after_ms, False
        self.due_ms = now_ms + answer.heartbeat_after_ms
        self.ends_ms = now_ms + answer.session_timeout_ms
        for partition, lease in answer.granted.items():
            self.leases[partition], self.known[partition] = lease, lease.offset
            self.told_in.pop(partition, None)
            self.claimed.add(partition)
        named = {(self.leases[each].topic_id, each.partition): each for each in self.claimed}
        self.wanted_back = frozenset(named[key] for key in answer.revoked if key in named)

    def holds(self, owned: Iterable[TopicPartition]) -> None:
        """The client holds these and no others. The next heartbeat says so."""
        self.claimed = {each for each in owned if each in self.leases}
        self.wanted_back &= self.claimed
        self.is_complete = False

    def release_unheard(self, held: Collection[TopicPartition]) -> None:
        """Give back at once what the service wants back and the client has never heard of."""
        released = self.wanted_back - frozenset(held)
        if released:
            self.claimed -= released
            self.wanted_back -= released
            self.is_complete = False

    def tell(self, now_ms: int) -> None:
        """The client is told its assignment, under a new generation."""
        self.told = self.assignment
        self.is_untold = False
        self.generation = max(now_ms // _MINUTE_MS - _GENERATIONS_BEGIN_MIN, self.generation + 1)
        kept = {each: number for each, number in self.told_in.items() if each in self.claimed}
        self.told_in = dict.fromkeys(self.told, self.generation) | kept

    def may_commit(self, partition: TopicPartition, generation: int) -> bool:
        """True if a client that was told of this generation may commit for a partition that it holds.

        A classic client must know the newest generation. One of the newer protocol may be behind, as in KIP-1251, if it
        has had the partition since.
        """
        if self.is_classic:
            return generation == self.generation
        return self.told_in.get(partition, self.generation) <= generation <= self.generation

    def may_go_back(self, partition: TopicPartition, committed: int) -> bool:
        """True if the client may commit an offset below this one, the group's.

        It may if the gateway knows the commit, so that the client has sought. If not, the client has gone on at another
        gateway, and this request is late.
        """
        return not self.is_untold and self.known.get(partition) == committed

    def lost(self, partition: TopicPartition) -> None:
        """The lease is another one's, or of another epoch. If the member is still to have it, it is granted anew."""
        self.leases.pop(partition, None)
        self.claimed.discard(partition)
        self.wanted_back -= {partition}
        self.is_complete = False
        self.is_untold = True
        self.due_ms = 0

    def _identity(self) -> dict[str, Any]:
        names = {"member_id": self.names.member_id}
        return names if self.names.instance_id is None else {**names, "instance_id": self.names.instance_id}

    def _owned(self) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for partition in sorted(self.claimed):
            owned.setdefault(self.leases[partition].topic_id, []).append(partition.partition)
        return owned


def restored(group: str, found: GroupMember, partitions: Iterable[GroupPartition], generation: int) -> KafkaMember:
    """The member as the service knows it. Its client names this generation.

    The client may hold less than all leases of the member: the answer to a grant may have been lost with the gateway.
    So it is told anew.
    """
    leases = {
        TopicPartition(each.topic, each.partition): HeldLease(
            topic_id=each.topic_id, lease_epoch=each.lease_epoch, offset=each.offset
        )
        for each in partitions
        if each.owner == found.member_id
    }
    subscription = Subscription(topics=found.topics, patterns=found.patterns)
    return KafkaMember(
        names=MemberNames(
            group=group, member_id=found.member_id, instance_id=found.instance_id, client_id=found.client_id
        ),
        subscription=subscription,
        subscription_known=subscription,
        sequence=found.sequence,
        epoch=found.epoch,
        session=found.session,
        generation=generation,
        leases=leases,
        known={each: lease.offset for each, lease in leases.items()},
        claimed=set(leases),
        told_in=dict.fromkeys(leases, generation),
        is_untold=True,
        session_timeout_ms=found.session_timeout_ms,
        topics=found.topics,
    )


def service_id(member_id: str) -> str:
    """The service's name of the member. Raises RequestRefused for an id that is too long."""
    escaped = _OTHER.sub(lambda found: b".%02x" % found[0][0], member_id.encode()).decode()
    if len(escaped) > MEMBER_ID_LENGTH_MAX:
        raise RequestRefused(
            KafkaError.unknown_member_id, f"a member id of {len(escaped)} letters: {MEMBER_ID_LENGTH_MAX} at most"
        )
    return escaped


def kafka_id(member_id: str) -> str:
    """The client's name of the member. A member of another kind of client has its own."""
    found = _ESCAPED.sub(lambda digits: chr(int(digits[1], 16)), member_id).encode("latin-1", "replace")
    try:
        return found.decode()
    except UnicodeDecodeError:
        return member_id
