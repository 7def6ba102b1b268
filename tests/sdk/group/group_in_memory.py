"""Members of one group over the service in memory, stepped by the test: heartbeats, polls and the clock."""

from collections.abc import Mapping
from typing import Any

from penstock.group.group_calls import HeartbeatRequest, HeldLease, MemberSettings, Sleepers, beat, commit_leased
from penstock.group.membership import Membership
from penstock.http.http_message import HttpRequest, Response, json_document
from penstock.http.steps import drive
from penstock.model import TopicPartition
from penstock.retry import RetryPolicy
from penstock.testing import MemoryTransport
from penstock_core.errors import PenstockError
from penstock_core.groups.group import Subscription
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.topics.create_topic import create_topic
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.support.service import SteppedClock

BEAT = "/v1/groups/g/heartbeat"
POLL_MS = 60_000
SESSION_MS = 6_000
BEAT_MS = 1_000


class DrivenMember:
    """A member whose application polls and releases partitions when the test calls `poll`."""

    def __init__(
        self,
        group: "GroupInMemory",
        name: str,
        instance_id: str | None = None,
        *,
        session_ms: int = SESSION_MS,
        interval_ms: int | None = BEAT_MS,
        sleepers: Sleepers | None = None,
    ) -> None:
        self.group = group
        self.membership = Membership(
            MemberSettings(
                member_id=name,
                instance_id=instance_id,
                client_id="",
                config={"session_timeout_ms": session_ms}
                | ({} if interval_ms is None else {"heartbeat_interval_ms": interval_ms}),
                max_poll_interval_ms=POLL_MS,
                retry=RetryPolicy(backoff_ms=100, backoff_max_ms=1_000),
            ),
            sleepers,
        )
        self.membership.subscribe(Subscription(topics=("orders",)), group.now_ms)
        self.lost: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []
        self.granted: dict[TopicPartition, HeldLease] = {}
        self.sent: list[Mapping[str, Any]] = []
        self.unheard = 0

    @property
    def numbers(self) -> list[int]:
        return sorted(each.partition for each in self.membership.owned)

    def beat(self) -> bool:
        """Send the heartbeat that is due; false if none is."""
        heartbeat = self.membership.next_heartbeat(self.group.now_ms)
        if heartbeat is not None:
            self.finish(heartbeat, self.send(heartbeat))
        return heartbeat is not None

    def send(self, heartbeat: HeartbeatRequest) -> Any:
        self.sent.append(heartbeat.body)
        return drive(beat("g", heartbeat), self.group.call)

    def finish(self, heartbeat: HeartbeatRequest, answer: Any) -> None:
        self.unheard = self.unheard + 1 if isinstance(answer, PenstockError) else 0
        self.membership.complete(heartbeat, answer, self.group.now_ms, 0.5)

    def poll(self) -> None:
        """Do as a consumer does at each poll."""
        membership, now_ms = self.membership, self.group.now_ms
        membership.poll_began(now_ms)
        error = membership.take_error()
        if error is not None:
            raise error
        self.lost += membership.take_lost(now_ms)
        revoked = membership.to_revoke()
        self.revoked += revoked
        membership.release(revoked, now_ms)
        self.granted |= membership.take_granted()
        membership.poll_ended(now_ms)


class GroupInMemory:
    """A service in memory, a clock that the test steps, and the members of group `g`."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.instance = memory_instance(clock=self.clock)
        create_topic(self.instance, "orders", 6, {})
        self.transport = FaultyTransport(MemoryTransport(self.instance))
        self.members: list[DrivenMember] = []

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def call(self, request: HttpRequest) -> Response:
        return self.transport.call(request.method, request.path, request.query, request.headers, request.body)

    def member(self, name: str, instance_id: str | None = None) -> DrivenMember:
        member = DrivenMember(self, name, instance_id)
        self.members.append(member)
        member.poll()
        return member

    def step(self, ms: int) -> None:
        self.clock.time_ms += ms

    def settle(self, *members: DrivenMember, rounds: int = 60) -> None:
        """Heartbeats and polls of the members in turn, for long enough that the group comes to rest."""
        for _ in range(rounds):
            for member in members:
                member.beat()
                member.poll()
            self.step(BEAT_MS // 4)


def commit(
    group: GroupInMemory, member: DrivenMember, leases: Mapping[TopicPartition, HeldLease]
) -> dict[TopicPartition, PenstockError]:
    offsets = {each: (1, lease) for each, lease in leases.items()}
    calls = commit_leased("g", member.membership.settings, offsets)
    return drive(calls, lambda request: json_document(request, group.call(request)))
