"""Programs that copy numbered items in transactions, as Kafka's clients behave, and the world that attacks them."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import Peer
from tests.kafka.transactions.desk import Client, TransactionDesk

TOPIC, GROUP, ITEMS = "orders", "g", 6
_AGAIN = ("coordinator_not_available", "kafka_storage_error", "concurrent_transactions")
_FATAL = ("producer_fenced", "invalid_producer_epoch", "invalid_txn_state")
_FATES = ["", "", "", "", "once", "after", "before", "commits after", "commits before"]
_NEXT = {"add": "left", "left": "right", "right": "offsets", "offsets": "commit"}


@dataclass(slots=True, kw_only=True, eq=False)
class Program:
    """Writes two records for each item, and the item's number as an offset, in one transaction."""

    number: int
    gateway: int
    client: Client
    phase: str = "start"
    item: int = 0
    is_old: bool = False

    @property
    def is_done(self) -> bool:
        """All is written, or a newer instance has taken over."""
        return self.phase == "dead" or (self.phase == "add" and self.item == ITEMS)

    async def step(self, world: "World", *, is_lost: bool) -> None:
        """One request. If its answer is lost, the program sends it again."""
        before = replace(self.client, following=dict(self.client.following))
        code = await self._request(world.desks[self.gateway])
        if is_lost:
            self.client = before
            return
        if code == "none":
            self._go_on(world)
        elif code in _FATAL:
            self.phase = "dead" if self.is_old else "start"
        elif code not in _AGAIN:
            must_begin = code in ("invalid_producer_id_mapping", "out_of_order_sequence_number")
            self.phase = "rebegin" if must_begin and world.chance.random() < 0.7 else "abort"

    async def _request(self, desk: TransactionDesk) -> str:
        name = f"{self.number}-{self.item}"
        match self.phase:
            case "start":
                return await desk.begin(self.client, anew=True)
            case "rebegin":
                return await desk.begin(self.client)
            case "add":
                return await desk.add(self.client, (TOPIC, 0), (TOPIC, 1))
            case "left":
                return await desk.produce(self.client, (TOPIC, 0), name)
            case "right":
                return await desk.produce(self.client, (TOPIC, 1), name)
            case "offsets":
                return await desk.send_offsets(self.client, {self.number: self.item + 1})
        return await desk.end(self.client, commit=self.phase == "commit")

    def _go_on(self, world: "World") -> None:
        if self.phase in _NEXT:
            self.phase = _NEXT[self.phase]
            return
        if self.phase == "commit":
            self.item += 1
            world.told.add((self.number, self.item - 1))
        elif self.phase == "start":
            self.item = world.committed(self.number)
        self.phase = "add"  # after an abort the same item again


@dataclass(slots=True, kw_only=True, eq=False)
class World:
    """Two gateways, and programs of two transactional ids. The seed decides all."""

    service: MemoryPenstock
    chance: random.Random
    desks: list[TransactionDesk] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    ghosts: list[tuple[int, Program]] = field(default_factory=list)
    told: set[tuple[int, int]] = field(default_factory=set)
    fate: str = ""

    def start(self) -> None:
        """Begin with a program for each id."""
        self.desks = [self._desk(), self._desk()]
        self.programs = [Program(number=each, gateway=each % 2, client=Client(name=f"t{each}")) for each in range(2)]

    async def step(self) -> None:
        """One event, then a check of what readers see."""
        self.fate = self.chance.choice(_FATES)
        event = self.chance.random()
        number = self.chance.randrange(2)
        has_changed = True
        if event < 0.03:
            await self.desks[number].close()
            self.desks[number] = self._desk()
        elif event < 0.06:
            await self._start_another(self.chance.choice(self.programs))
        elif event < 0.16 and self.ghosts:
            await self._late(*self.ghosts.pop(self.chance.randrange(len(self.ghosts))))
        else:
            program = self.chance.choice(self.programs)
            if self.chance.random() < 0.1:
                program.gateway = 1 - program.gateway
            is_lost = self.chance.random() < 0.15
            if is_lost and self.chance.random() < (1 if program.phase == "commit" else 0.2):
                copy = replace(program, client=replace(program.client, following=dict(program.client.following)))
                self.ghosts.append((program.gateway, copy))
            has_changed = program.phase == "commit"
            if not program.is_done:
                await program.step(self, is_lost=is_lost)
        if has_changed:
            self.check()

    async def settle(self) -> None:
        """Without faults each program comes to its end."""
        self.fate = ""
        for _ in range(400):
            for program in self.programs:
                if not program.is_done:
                    await program.step(self, is_lost=False)
        assert all(each.is_done for each in self.programs), [each.phase for each in self.programs]
        self.check()
        found = {item for item, _ in self._seen()}
        assert found == {f"{number}-{item}" for number in range(2) for item in range(ITEMS)}
        for desk in self.desks:
            await desk.close()

    def check(self) -> None:
        """Each item is there whole, once, or not at all; those that a program was told of are there."""
        seen = self._seen()
        assert all(count == 1 for count in seen.values()), seen
        left, right = ({item for item, partition in seen if partition == side} for side in range(2))
        assert left == right
        assert {f"{number}-{item}" for number, item in self.told} <= left
        for number in range(2):
            mine = {item for item in left if item.startswith(f"{number}-")}
            assert mine == {f"{number}-{item}" for item in range(self.committed(number))}

    def committed(self, number: int) -> int:
        """The offset that the id's last transaction has committed."""
        offsets = self.service.admin().group_offsets(GROUP)
        return next((each.offset for each in offsets if each.partition == number), 0)

    async def _start_another(self, program: Program) -> None:
        """Another instance of the id; the old one goes on until it is fenced."""
        if program.is_old or program.phase == "dead":
            return
        self.programs = [each for each in self.programs if not (each.is_old and each.number == program.number)]
        program.is_old = True
        gateway = self.chance.randrange(2)
        self.programs.append(Program(number=program.number, gateway=gateway, client=Client(name=program.client.name)))

    async def _late(self, gateway: int, program: Program) -> None:
        """A request comes again, on a connection that its client has closed long ago."""
        if program.phase in ("start", "rebegin"):
            return
        desk = self.desks[gateway]
        open_peer, desk.peer = desk.peer, Peer(number=2, address="ghost")
        desk.peer.gone.set()
        await program.step(self, is_lost=True)
        desk.peer = open_peer

    def _seen(self) -> Counter[tuple[str, int]]:
        return Counter(((each.value or b"").decode(), each.partition) for each in self.service.records(TOPIC))

    def _desk(self) -> TransactionDesk:
        return TransactionDesk(self.service, self._judge)

    def _judge(self, path: str, body: bytes) -> str:
        """The same fate for all tries of one request, but the fate `once`."""
        if path not in ("/v1/transactions", "/v1/producers"):
            return ""
        if self.fate == "once":
            self.fate = ""
            return "after"
        if self.fate.startswith("commits"):
            return self.fate.removeprefix("commits ") if path == "/v1/transactions" else ""
        return self.fate


async def run_seed(service: MemoryPenstock, seed: int, steps: int) -> None:
    """One world from its beginning to its end. Raises AssertionError if a promise is broken."""
    world = World(service=service, chance=random.Random(seed))
    world.start()
    for _ in range(steps):
        await world.step()
    await world.settle()
