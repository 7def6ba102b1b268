"""Workers, gateways and a store of documents in virtual time, with lost answers, deaths and frozen gateways.

The gateways run the code that is shipped (`LedBoard`); requests reach it by method calls. What a gateway does to the
store, and what a worker asks of a gateway, takes a time by chance, and may fail. A gateway that is frozen answers
nobody, and its calls of the store wait. The judge notes each answer that a worker gets.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.api.group_admin_calls import StoredDocument
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.led.board import LedBoard
from penstock_kafka.groups.led.led_group import LedGroup, LedMember, metadata_of
from penstock_kafka.groups.led.led_groups import LedGroups
from tests.kafka.led.virtual_time import virtual_ms

SESSION_MS, REBALANCE_MS, BEAT_S = 10_000, 20_000, 3.0
TASKS = 7
_REJOINS = (KafkaError.rebalance_in_progress, KafkaError.coordinator_not_available)


@dataclass(slots=True, kw_only=True)
class Store:
    """The service's documents: compare-and-set, whose answer may be lost after it was applied."""

    chance: random.Random
    trouble: float = 0.0  # the part of calls that fail
    version: int | None = None
    data: bytes | None = None
    calls: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True, eq=False)
class Gateway:
    """A gateway's way to the store, and its board. `thawed` is clear while it is frozen."""

    name: str
    store: Store
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)
    is_dead: bool = False
    groups: LedGroups = field(init=False)

    def __post_init__(self) -> None:
        self.thawed.set()
        self.groups = LedGroups(self, self.name, lambda work, _: self.start(work))

    @property
    def board(self) -> LedBoard:
        """The board that the gateway's next request finds."""
        return self.groups.board("workers")

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Work that dies with the gateway."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its worker may have gone

    def die(self) -> None:
        """What is under way at the store may still be applied."""
        self.is_dead = True
        for task in self.tasks:
            task.cancel()

    async def read(self, group: str) -> StoredDocument | None:
        """A read of the store."""
        await self._reach("reads")
        found = (self.store.version, self.store.data)
        await self._return()
        return None if found[0] is None else StoredDocument(version=found[0], data=found[1])

    async def write(self, group: str, version: int | None, protocol_type: str, member_count: int, data: bytes) -> int:
        """A compare-and-set. A dead gateway's may be applied after its death: it runs as a task of the store."""
        return await asyncio.shield(asyncio.get_running_loop().create_task(self._write(version, data)))

    async def _write(self, version: int | None, data: bytes) -> int:
        await self._reach("writes")
        if version != self.store.version:
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "another version")
        written = self.store.version = (version or 100) + 1
        self.store.data = data
        await self._return()
        return written

    async def _reach(self, what: str) -> None:
        self.store.calls[what] += 1
        await self.thawed.wait()
        await asyncio.sleep(self.store.chance.uniform(0.005, 0.08))
        if self.store.chance.random() < self.store.trouble:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "lost before")

    async def _return(self) -> None:
        if self.store.chance.random() < self.store.trouble:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "lost after", maybe_applied=True)
        await asyncio.sleep(self.store.chance.uniform(0.005, 0.08))
        await self.thawed.wait()


@dataclass(slots=True, kw_only=True)
class Judge:
    """The promises, checked with each answer."""

    leaders: dict[int, str] = field(default_factory=dict)  # by generation
    rosters: dict[int, frozenset[str]] = field(default_factory=dict)  # the members that its leader was told of
    decisions: dict[int, list[dict[str, bytes]]] = field(default_factory=dict)  # of a leader: one of them counts
    assignments: dict[tuple[int, str], bytes] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)  # generation by member
    broken: list[str] = field(default_factory=list)  # promises
    unknown: int = 0  # answers that told a worker that it is no member

    def joined(self, name: str, group: LedGroup) -> None:
        """A JoinGroup was answered."""
        generation = group.generation
        assert self.leaders.setdefault(generation, group.leader) == group.leader, "a generation has two leaders"
        assert self.newest.get(name, 0) <= generation, "a generation went back"
        self.newest[name] = generation
        if name == group.leader:
            roster = frozenset(group.members)
            assert self.rosters.setdefault(generation, roster) == roster, "a leader was told of two groups"

    def synced(self, name: str, generation: int, assignment: bytes) -> None:
        """A SyncGroup was answered."""
        known = self.assignments.setdefault((generation, name), assignment)
        assert known == assignment, "a member was told two assignments in one generation"
        assert generation in self.decisions, "an assignment came before its leader's"
        fitting = [each for each in self.decisions[generation] if each.get(name, b"") == assignment]
        assert fitting, "an assignment is not its leader's, or not of the decision that another member was told"
        self.decisions[generation] = fitting
        assert name in self.rosters[generation], "the leader did not know of a member"

    def decided(self, generation: int, decision: dict[str, bytes]) -> None:
        """A leader sends its assignments. If it gets no answer it may join again, and decide otherwise."""
        self.decisions.setdefault(generation, []).append(decision)


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A client as Connect's worker is: it joins, assigns if it leads, works, and heartbeats."""

    number: int
    gateway: Gateway
    judge: Judge
    chance: random.Random
    lives: int = 0
    name: str = ""
    generation: int = -1
    assignment: bytes | None = None  # None while it may not work
    is_dead: bool = False

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._join()
                while True:
                    await asyncio.sleep(BEAT_S * self.chance.uniform(0.9, 1.1))
                    code = await self._ask(lambda board: board.beat(self.name, self.generation))
                    if code is not KafkaError.none:
                        break
            except RequestRefused as error:
                if error.code not in _REJOINS:
                    self.judge.unknown += 1
                    self.name = ""
            except (PenstockError, ConnectionError, TimeoutError):
                pass
            except AssertionError as error:
                self.judge.broken.append(str(error))
            self.assignment = None
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))

    async def hang(self) -> None:
        """Join, and then only heartbeat, whatever the answer: no assignment from it if it leads, no second join."""
        with suppress(RequestRefused, PenstockError, ConnectionError, TimeoutError):
            self.name = f"stuck{self.number}-led"
            group = await self._ask(lambda board: board.join(self._wish(), "connect", asyncio.Event()), 60)
            while True:
                await asyncio.sleep(BEAT_S)
                await self._ask(lambda board: board.beat(self.name, group.generation))

    async def sync_late(self) -> None:
        """A SyncGroup of a generation that the worker was in at some time: a leader's has another decision."""
        name = self.name
        known = [generation for generation in self.judge.rosters if self.judge.leaders[generation] == name]
        if not known:
            return
        generation = self.chance.choice(known)
        decision = _assigned(sorted(self.judge.rosters[generation]), self.chance)
        self.judge.decided(generation, decision)
        gone = asyncio.Event()
        with suppress(RequestRefused, PenstockError, ConnectionError, TimeoutError):
            _, assignment = await self._ask(lambda board: board.sync(name, generation, decision, gone))
            self.judge.synced(name, generation, assignment)
        gone.set()

    async def leave(self) -> None:
        """A last request."""
        with suppress(RequestRefused, PenstockError, ConnectionError, TimeoutError):
            await self._ask(lambda board: board.leave(self.name))

    async def _join(self) -> None:
        if not self.name:
            self.lives += 1
            self.name = f"w{self.number}.{self.lives}-led"
        wish = self._wish()
        gone = asyncio.Event()
        try:
            group = await self._ask(lambda board: board.join(wish, "connect", gone), REBALANCE_MS / 1_000 + 6)
            self.judge.joined(self.name, group)
            self.generation = group.generation
            decision: dict[str, bytes] = {}
            if group.leader == self.name:
                assert all(metadata_of(each, "compatible") for each in group.members.values())
                decision = _assigned(sorted(group.members), self.chance)
                self.judge.decided(self.generation, decision)
            _, self.assignment = await self._ask(
                lambda board: board.sync(self.name, self.generation, decision, gone), REBALANCE_MS / 1_000 + 6
            )
        finally:
            gone.set()
        self.judge.synced(self.name, self.generation, self.assignment)

    def _wish(self) -> LedMember:
        return LedMember(
            member_id=self.name,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocols=(("compatible", f"{self.name}/{self.assignment!r}".encode()), ("eager", b"")),
            gateway=self.gateway.name,
        )

    async def _ask(self, request: Callable[[LedBoard], Coroutine[Any, Any, Any]], timeout_s: float = 8.0) -> Any:
        """A request and its answer. The gateway's part goes on if the worker gives up."""
        gateway = self.gateway
        await asyncio.sleep(self.chance.uniform(0.001, 0.01))
        if gateway.is_dead:
            raise ConnectionError

        async def handled() -> Any:
            await gateway.thawed.wait()
            try:
                return await request(gateway.board)
            finally:
                await gateway.thawed.wait()

        task = gateway.start(handled())
        done, _ = await asyncio.wait((task,), timeout=timeout_s)
        if not done:
            raise TimeoutError
        if task.cancelled():
            raise ConnectionError
        return task.result()


def _assigned(names: list[str], chance: random.Random) -> dict[str, bytes]:
    chance.shuffle(names)
    return {
        name: ",".join(str(task) for task in range(TASKS) if task % len(names) == place).encode()
        for place, name in enumerate(names)
    }


def now_ms() -> int:
    """In place of the monotonic clock of the modules under test."""
    return virtual_ms()
