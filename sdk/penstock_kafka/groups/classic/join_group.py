"""JoinGroup of Kafka's classic protocol: a consumer joins, or names what it keeps and asks for its new assignment.

Kafka lets the members of a generation wait for each other, and one of them assign the partitions. Here the service
assigns (docs/protocol/gateway). So each member joins by itself, all of them are followers of a leader that does not
exist, and SyncGroup tells each one its part. A member waits for partitions while it holds none, as long as a broker
would let it. The first member of a group waits a moment for others that start with it.

SyncGroup of the classic protocol: the assignment that the service made, under the generation of the last join.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.model import TopicPartition
from penstock.system import monotonic_ms, new_member_id
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Subscription, parse_subscription
from penstock_core.limits import SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN, WAITING_HEARTBEAT_MS
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.classic.consumer_protocol import ClassicSubscription, read_subscription, write_assignment
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.led.led_groups import LedGroups, is_led, led_member_id
from penstock_kafka.groups.members.member import KafkaMember, MemberNames, service_id
from penstock_kafka.groups.members.sessions import Sessions

PROTOCOL_TYPE = "consumer"
LEADER = "penstock"  # no member has this id: ids that the gateway makes end in 32 digits
GATHER_MS = 1_000  # for others that start with the first member, as group.initial.rebalance.delay.ms
JOIN_WAIT_MS_MAX = 300_000  # for a first partition: Kafka's default of max.poll.interval.ms
PART_WAIT_MS_MAX = 12_000  # for the rest of them, and next to others that have all
_ID_REQUIRED_VERSION = 4  # KIP-394: a client asks for its id first
_CLIENT_ID_SHOWN = 60  # characters of it in a member id, of 100
COOPERATIVE = "cooperative"  # in the names of such assignors: Java's, librdkafka's and kafka-python's
_ASSIGNORS = {"range": "range", "roundrobin": "round_robin", "RoundRobinAssigner": "round_robin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patience:
    """The longest wait of one JoinGroup, from `began_ms` on.

    `is_first`: this gateway serves no other member that was told an assignment. `is_cooperative`: its clients expect
    that what others have still to release comes in a second step.
    """

    began_ms: int
    rebalance_ms: int
    is_new: bool
    is_first: bool
    is_cooperative: bool

    def wait_ms(self, member: KafkaMember, owned: frozenset[TopicPartition], pause_ms: int) -> int | None:
        """The time until the next heartbeat, None if the client should hear of its assignment now.

        It has all of it, or must let go of a part first, or goes on reading what it kept while the rest comes. A new
        member without a part waits a while, as if the others had to join again before.
        """
        waited_ms = monotonic_ms() - self.began_ms
        gather_ms = min(GATHER_MS, self.rebalance_ms) - waited_ms if self.is_first else 0
        if gather_ms > 0:
            return min(pause_ms, gather_ms)
        keeps = bool(owned) or (self.is_cooperative and not self.is_first)  # others that start with it let go at once
        has_come = bool(member.claimed) or not self.is_new or self.is_first
        if (member.is_complete and has_come) or member.wanted_back or (keeps and pause_ms > 0):
            return None
        if pause_ms == 0 and waited_ms < JOIN_WAIT_MS_MAX:
            return 0  # the service has more for it at once
        is_short = member.is_complete or bool(member.claimed)
        longest_ms = min(self.rebalance_ms, PART_WAIT_MS_MAX if is_short else JOIN_WAIT_MS_MAX)
        return None if waited_ms + pause_ms > longest_ms else min(pause_ms, WAITING_HEARTBEAT_MS)


class JoinGroup:
    """Answers JoinGroup."""

    def __init__(self, sessions: Sessions, led: LedGroups) -> None:
        self._sessions = sessions
        self._led = led

    async def answer(self, call: Call) -> Answer:
        """The generation and the assignor's name; the member's assignment comes with SyncGroup."""
        member_id = str(call.request.member_id)
        if str(call.request.protocol_type) != PROTOCOL_TYPE and call.request.protocols:
            return await self._join_led(call, member_id)
        try:
            protocol, offered = _offered(call)
            if not member_id:
                member_id = made_member_id(call.client_id)
                if call.version >= _ID_REQUIRED_VERSION and call.request.group_instance_id is None:
                    return _refused(KafkaError.member_id_required, member_id)
                member = self._new(call, member_id)
            else:
                member = await self._known(call, member_id, offered)
            try:
                await self._join(call, member, protocol, offered)
            except PenstockError as error:
                if error.code is not ErrorCode.UNKNOWN_MEMBER:
                    raise
                # What the gateway knew of it was old: the session has ended, or goes on from another gateway.
                member = await self._known(call, member_id, offered)
                await self._join(call, member, protocol, offered)
        except (PenstockError, RequestRefused) as error:
            return _refused(group_error(error), member_id)
        return {
            "error_code": KafkaError.none,
            "generation_id": member.generation,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": protocol,
            "leader": LEADER,
            "member_id": member_id,
            "members": [],
        }

    async def _join_led(self, call: Call, member_id: str) -> Answer:
        """A group of something else than consumers: its leader assigns."""
        try:
            if not member_id:
                member_id = led_member_id(made_member_id(call.client_id))
                if call.version >= _ID_REQUIRED_VERSION:
                    return _refused(KafkaError.member_id_required, member_id)
            _check_session(call)
            return await self._led.join(call, member_id)
        except (PenstockError, RequestRefused) as error:
            return _refused(group_error(error), member_id)

    async def _known(self, call: Call, member_id: str, offered: ClassicSubscription) -> KafkaMember:
        """A member that goes on. One that keeps nothing may begin anew, wherever it was."""
        names = _names(call, member_id)
        member = self._sessions.book.find(names.group, names.member_id)
        if member is not None:
            return member
        if offered.owned or names.instance_id is not None:
            return await self._sessions.find(names, 0)
        return self._new(call, member_id)

    def _new(self, call: Call, member_id: str) -> KafkaMember:
        member = KafkaMember(names=_names(call, member_id))
        self._sessions.book.remember(member)
        return member

    async def _join(self, call: Call, member: KafkaMember, protocol: str, offered: ClassicSubscription) -> None:
        member.is_classic, member.protocol = True, protocol
        member.subscription = _subscription(offered)
        member.session_timeout_ms = _milliseconds(call.request.session_timeout)
        member.joins += 1
        join, is_new = member.joins, member.session == 0
        # A client that joins again unasked has seen a change of its topics.
        member.looks_at_topics = not (is_new or member.must_be_told)
        member.holds(offered.owned)
        patience = _Patience(
            began_ms=monotonic_ms(),
            rebalance_ms=_rebalance_ms(call),
            is_new=is_new,
            is_first=is_new and self._sessions.book.is_idle(member.names.group),
            is_cooperative=COOPERATIVE in protocol,
        )
        while True:
            answer = await self._sessions.beat(member, _config(protocol) if is_new else None)
            if is_new:
                self._sessions.book.hurry(member.names.group, member)
            is_new = False
            unheard = member.wanted_back - offered.owned
            member.release_unheard(offered.owned)
            pause_ms = 0 if unheard else answer.heartbeat_after_ms
            if member.joins != join:
                raise RequestRefused(KafkaError.rebalance_in_progress, "the client has sent another JoinGroup")
            wait_ms = patience.wait_ms(member, offered.owned, pause_ms)
            if wait_ms is None or await _is_gone(call, wait_ms):
                break
        if member.assignment != member.told:
            self._sessions.book.hurry(member.names.group, member)  # it may have let go of what another one waits for
        member.tell(self._sessions.now_ms())


def made_member_id(client_id: str) -> str:
    """A new member id, which shows the client's."""
    return f"{re.sub('[^A-Za-z0-9_-]', '_', client_id)[:_CLIENT_ID_SHOWN]}-{new_member_id()}"


def _offered(call: Call) -> tuple[str, ClassicSubscription]:
    """The first protocol that the client offers.

    Raises RequestRefused for consumers whose leader assigns, and for a session time-out that no group has.
    """
    request = call.request
    if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
        raise RequestRefused(
            KafkaError.inconsistent_group_protocol,
            f"protocol type {str(request.protocol_type)[:100]!r}, and {len(request.protocols)} protocols: offer one",
        )
    _check_session(call)
    first = request.protocols[0]
    name = str(first.name)
    if name == "stream":
        raise RequestRefused(
            KafkaError.inconsistent_group_protocol,
            "Kafka Streams: its leader assigns the partitions whose offsets it commits, and no lease would fence them",
        )
    try:
        return name, read_subscription(first.metadata)
    except ValueError as error:
        raise RequestRefused(KafkaError.inconsistent_group_protocol, str(error)) from error


def _check_session(call: Call) -> None:
    session_ms = _milliseconds(call.request.session_timeout)
    if not SESSION_TIMEOUT_MS_MIN <= session_ms <= SESSION_TIMEOUT_MS_MAX:
        raise RequestRefused(
            KafkaError.invalid_session_timeout,
            f"session.timeout.ms is {session_ms:,}: {SESSION_TIMEOUT_MS_MIN:,} to {SESSION_TIMEOUT_MS_MAX:,}",
        )


def _subscription(offered: ClassicSubscription) -> Subscription:
    return parse_subscription(offered.topics, ())


def _names(call: Call, member_id: str) -> MemberNames:
    return MemberNames(
        group=str(call.request.group_id),
        member_id=service_id(member_id),
        instance_id=getattr(call.request, "group_instance_id", None),
        client_id=call.client_id,
    )


def _config(protocol: str) -> Mapping[str, Any]:
    """Settings of the group, if this member makes it."""
    return {"assignor": _ASSIGNORS[protocol]} if protocol in _ASSIGNORS else {}


def _rebalance_ms(call: Call) -> int:
    return _milliseconds(getattr(call.request, "rebalance_timeout", call.request.session_timeout))


def _milliseconds(time: timedelta) -> int:
    return int(time.total_seconds() * 1_000)


async def _is_gone(call: Call, pause_ms: int) -> bool:
    """Wait so long. True if the client has closed its connection."""
    try:
        async with asyncio.timeout(pause_ms / 1_000):
            await call.peer.gone.wait()
    except TimeoutError:
        return False
    return True


def _refused(code: KafkaError, member_id: str) -> Answer:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_name": "",
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


class SyncGroup:
    """Answers SyncGroup. For consumers it calls nothing: JoinGroup has done the work."""

    def __init__(self, sessions: Sessions, led: LedGroups) -> None:
        self._sessions = sessions
        self._led = led

    async def answer(self, call: Call) -> Answer:
        """The member's partitions. A client that joined at another gateway joins again."""
        request = call.request
        if is_led(str(request.member_id)):
            return await self._sync_led(call)
        try:
            member = self._sessions.book.find(str(request.group_id), service_id(str(request.member_id)))
        except RequestRefused as error:
            return _sync_refused(error.code)
        if member is None or member.is_untold:
            return _sync_refused(KafkaError.rebalance_in_progress)
        if request.generation_id != member.generation:
            return _sync_refused(KafkaError.illegal_generation)
        return {
            "error_code": KafkaError.none,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": member.protocol,
            "assignment": write_assignment(member.told),
        }

    async def _sync_led(self, call: Call) -> Answer:
        try:
            return await self._led.sync(call)
        except (PenstockError, RequestRefused) as error:
            return _sync_refused(group_error(error))


def _sync_refused(code: KafkaError) -> Answer:
    return {"error_code": code, "assignment": b""}
