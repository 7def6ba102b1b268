"""Members of one group, each with an application that polls when it is told to, over the service in memory."""

from collections.abc import Mapping
from typing import Any

from penstock.group_calls import beat, commit_leased
from penstock.http_message import Request, Response, json_document
from penstock.membership import Heartbeat, Lease, MemberSettings, Membership
from penstock.model import TopicPartition
from penstock.retry import RetryPolicy
from penstock.steps import drive
from penstock.testing import MemoryTransport
from penstock_broker.adapters.memory import memory_broker
from penstock_broker.create_topic import create_topic
from penstock_core.errors import PenstockError
from penstock_core.group import Subscription
from tests.broker.setting import SteppedClock
from tests.sdk.faulty_transport import FaultyTransport

BEAT = "/v1/groups/g/heartbeat"
POLL_MS = 60_000
SESSION_MS = 6_000
BEAT_MS = 1_000


class Driven:
    """A member whose application polls and obeys when told to."""

    def __init__(self, world: "World", name: str, instance_id: str | None = None) -> None:
        self.world = world
        self.membership = Membership(
            MemberSettings(
                member_id=name,
                instance_id=instance_id,
                client_id="",
                config={"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS},
                max_poll_interval_ms=POLL_MS,
                retry=RetryPolicy(backoff_ms=100, backoff_max_ms=1_000),
            )
        )
        self.membership.subscribe(Subscription(topics=("orders",)), world.now_ms)
        self.lost: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []
        self.granted: dict[TopicPartition, Lease] = {}
        self.sent: list[Mapping[str, Any]] = []
        self.unheard = 0

    @property
    def numbers(self) -> list[int]:
        return sorted(each.partition for each in self.membership.owned)

    def beat(self) -> bool:
        """Send what is due; whether anything was."""
        heartbeat = self.membership.next_heartbeat(self.world.now_ms)
        if heartbeat is not None:
            self.finish(heartbeat, self.send(heartbeat))
        return heartbeat is not None

    def send(self, heartbeat: Heartbeat) -> Any:
        self.sent.append(heartbeat.body)
        return drive(beat("g", heartbeat), self.world.call)

    def finish(self, heartbeat: Heartbeat, told: Any) -> None:
        self.unheard = self.unheard + 1 if isinstance(told, PenstockError) else 0
        self.membership.complete(heartbeat, told, self.world.now_ms, 0.5)

    def poll(self) -> None:
        """What consumers do at each poll."""
        membership, now_ms = self.membership, self.world.now_ms
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


class World:
    """A service and a clock."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.broker = memory_broker(clock=self.clock)
        create_topic(self.broker, "orders", 6, {})
        self.transport = FaultyTransport(MemoryTransport(self.broker))
        self.members: list[Driven] = []

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def call(self, request: Request) -> Response:
        return self.transport.call(request.method, request.path, request.query, request.headers, request.body)

    def member(self, name: str, instance_id: str | None = None) -> Driven:
        member = Driven(self, name, instance_id)
        self.members.append(member)
        member.poll()
        return member

    def step(self, ms: int) -> None:
        self.clock.time_ms += ms

    def settle(self, *members: Driven, rounds: int = 60) -> None:
        """Beats and polls of these in turn, until a while after nothing changes any more."""
        for _ in range(rounds):
            for member in members:
                member.beat()
                member.poll()
            self.step(BEAT_MS // 4)


def commit(world: World, member: Driven, leases: Mapping[TopicPartition, Lease]) -> dict[TopicPartition, PenstockError]:
    offsets = {each: (1, lease) for each, lease in leases.items()}
    calls = commit_leased("g", member.membership.settings, offsets, may_go_back=True)
    return drive(calls, lambda request: json_document(request, world.call(request)))
