"""Clients, gateways and late requests in any order: offsets do not go back, and each partition ends with one client."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.model import TopicPartition
from penstock.system import wall_clock_ms
from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.groups.classic.consumer_protocol import read_assignment
from tests.kafka.groups.cooperative import cooperative
from tests.kafka.groups.desk import GroupDesk, committed, run

PARTITIONS = 5
STEPS = 60
REJOIN = ("rebalance_in_progress", "illegal_generation")


@dataclass(slots=True, kw_only=True, eq=False)
class _Client:
    """A consumer of the classic protocol, as its library behaves."""

    is_cooperative: bool
    gateway: int
    joined: dict[str, Any] = field(default_factory=dict)
    held: frozenset[TopicPartition] = frozenset()

    async def join(self, desk: GroupDesk) -> None:
        """Join, or join again with what it keeps. A refusal takes its id."""
        for _ in range(3):
            member_id = self.joined.get("member_id", "")
            if not self.is_cooperative:
                self.held = frozenset()
            fields = cooperative(self.held) if self.is_cooperative else {}
            answer = await desk.join(member_id, **fields)
            if answer["error_code"].name == "none":
                self.joined = answer
                told = await desk.sync(answer)
                assert told["error_code"].name == "none"
                self.held = read_assignment(told["assignment"])
                return
            self.joined, self.held = {}, frozenset()
        raise AssertionError(answer)

    async def beat(self, desk: GroupDesk) -> bool:
        """Heartbeat, and obey. True if nothing changed."""
        code = await desk.beat(self.joined) if self.joined else "unknown_member_id"
        if code == "none":
            return True
        if code not in REJOIN:
            self.joined, self.held = {}, frozenset()
        await self.join(desk)
        return False


class _World:
    def __init__(self, service: MemoryPenstock, seed: int) -> None:
        self.chance = random.Random(seed)
        self.service = service
        self.gateways = [GroupDesk(service), GroupDesk(service)]
        self.clients = [_Client(is_cooperative=bool(number % 2), gateway=number % 2) for number in range(3)]
        self.late: list[tuple[dict[str, Any], dict[int, int]]] = []
        self.newest = 0
        self.seen: dict[int, int] = {}

    def desk(self, client: _Client) -> GroupDesk:
        return self.gateways[client.gateway]

    async def step(self) -> None:
        client = self.chance.choice(self.clients)
        match self.chance.choice(
            ["beat", "beat", "beat", "commit", "commit", "commit", "late", "move", "die", "leave"]
        ):
            case "beat":
                await client.beat(self.desk(client))
            case "commit" if client.held:
                self.newest += 1
                offsets = {self.chance.choice(sorted(client.held)).partition: self.newest}
                self.late.append((dict(client.joined), offsets))
                codes = await self.desk(client).commit(client.joined, offsets)
                if {*codes.values()} != {"none"}:  # the client has lost its partitions, and joins again
                    client.held = frozenset()
                    if "unknown_member_id" in codes.values():
                        client.joined = {}
                    await client.join(self.desk(client))
            case "late" if self.late:
                joined, offsets = self.chance.choice(self.late)
                # A copy from the newest generation may go back, as in Kafka.
                if not any(each.joined.get("generation_id") == joined["generation_id"] for each in self.clients):
                    await self.chance.choice(self.gateways).commit(joined, offsets)
            case "move":
                client.gateway = 1 - client.gateway
            case "die":
                self.gateways[self.chance.randrange(2)] = GroupDesk(self.service)
            case "leave" if client.joined:
                members = [{"member_id": client.joined["member_id"], "group_instance_id": None}]
                await self.desk(client).ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members)
                self.clients.remove(client)
                self.clients.append(_Client(is_cooperative=client.is_cooperative, gateway=client.gateway))

    def check(self) -> None:
        now = committed(self.service)
        assert all(now[each] >= offset for each, offset in self.seen.items()), (self.seen, now)
        self.seen = now

    async def settle(self) -> None:
        parts: list[int] = []
        for _ in range(60):
            is_quiet = all([await client.beat(self.desk(client)) for client in self.clients])
            parts = sorted(each.partition for client in self.clients for each in client.held)
            if is_quiet and len(parts) >= PARTITIONS:
                break
        assert parts == [*range(PARTITIONS)]
        for client in self.clients:
            offsets = {each.partition: self.newest + 1 for each in client.held}
            if offsets:
                assert {*(await self.desk(client).commit(client.joined, offsets)).values()} == {"none"}


@pytest.mark.parametrize("seed", range(12))
def test_offsets_never_go_back_and_each_partition_ends_with_one_client(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = wall_clock_ms()

    def later() -> int:
        nonlocal now_ms
        now_ms += 500
        return now_ms

    monkeypatch.setattr("penstock_kafka.apis.wall_clock_ms", later)

    async def work(service: MemoryPenstock) -> None:
        world = _World(service, seed)
        for client in world.clients:
            await client.join(world.desk(client))
        for _ in range(STEPS):
            await world.step()
            world.check()
        await world.settle()

    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=PARTITIONS)
        run(work(service))
