"""Workers and gateways that die, freeze and move, in any order: no generation has two minds, and all tasks are run."""

import asyncio
import random

import pytest

from tests.kafka.led import mutants
from tests.kafka.led.virtual_time import run_virtually
from tests.kafka.led.world import REBALANCE_MS, SESSION_MS, TASKS, Gateway, Judge, Store, Worker, now_ms

WORKERS = 4
GATEWAYS = 3
STEPS = 25
SEEDS = range(6)
DEEDS = ("kill", "kill", "leave", "move", "die", "freeze", "trouble", "calm", "hang", "late", "late", "wait", "wait")
QUIET_S = 2 * (SESSION_MS + REBALANCE_MS) / 1_000 + 30  # in which the group must come to rest


class _World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = Store(chance=self.chance)
        self.judge = Judge()
        self.gateways = [Gateway(name=f"g{number}", store=self.store) for number in range(GATEWAYS)]
        self.workers: dict[Worker, asyncio.Task[None]] = {}
        self.others: set[asyncio.Task[None]] = set()
        self.started = 0
        for _ in range(WORKERS):
            self.start()

    def start(self) -> None:
        self.started += 1
        worker = Worker(
            number=self.started, gateway=self.chance.choice(self.gateways), judge=self.judge, chance=self.chance
        )
        self.workers[worker] = asyncio.get_running_loop().create_task(worker.run())

    async def step(self) -> None:
        place = self.chance.randrange(GATEWAYS)
        worker = self.chance.choice([*self.workers])
        match self.chance.choice(DEEDS):
            case "kill":
                self.workers.pop(worker).cancel()
                self.start()
            case "leave":
                self.workers.pop(worker).cancel()
                await worker.leave()
                self.start()
            case "move":
                worker.gateway = self.chance.choice(self.gateways)
            case "die":
                self.die(place)
            case "hang":
                stuck = Worker(
                    number=1_000 + self.started, gateway=self.gateways[place], judge=self.judge, chance=self.chance
                )
                self.others.add(asyncio.get_running_loop().create_task(stuck.hang()))
            case "late":
                self.others.add(asyncio.get_running_loop().create_task(worker.sync_late()))
            case "freeze":
                self.gateways[place].thawed.clear()
                asyncio.get_running_loop().call_later(self.chance.uniform(1, 40), self.gateways[place].thawed.set)
            case "trouble":
                self.store.trouble = self.chance.uniform(0.05, 0.4)
            case "calm":
                self.store.trouble = 0.0
        self.follow()
        await asyncio.sleep(self.chance.choice([0.1, 1, 4, 15]))
        assert not self.judge.broken, self.judge.broken

    def die(self, place: int) -> None:
        self.gateways[place].die()
        self.gateways[place] = Gateway(name=f"h{self.started}-{self.chance.random()}", store=self.store)

    def follow(self) -> None:
        """Clients of a dead gateway go to another one."""
        for worker in self.workers:
            if worker.gateway.is_dead:
                worker.gateway = self.chance.choice(self.gateways)

    async def settle(self) -> None:
        self.store.trouble = 0.0
        for gateway in self.gateways:
            gateway.thawed.set()
        await asyncio.sleep(QUIET_S)
        unknown = self.judge.unknown
        self.start()  # a rebalance, in which members that hang have to go
        await asyncio.sleep(QUIET_S)
        self.workers.pop(self.chance.choice([*self.workers])).cancel()
        await asyncio.sleep(QUIET_S)
        calls = self.store.calls.total()
        await asyncio.sleep(60)
        for task in self.others:
            if task.done():
                task.result()  # a promise that was broken
        assert not self.judge.broken, self.judge.broken
        generations = {worker.generation for worker in self.workers}
        assert len(generations) == 1, generations
        tasks = sorted(
            task for worker in self.workers for task in (worker.assignment or b"").decode().split(",") if task
        )
        assert tasks == [str(task) for task in range(TASKS)], tasks
        group = await self.gateways[0].board.read()
        assert {*group.members} == {worker.name for worker in self.workers}
        assert self.judge.unknown == unknown, "a session ended in quiet times"
        assert self.store.calls.total() - calls <= 60 / 3.3 * 3 * GATEWAYS, "too many calls in quiet times"

    def close(self) -> None:
        for task in (*self.workers.values(), *self.others):
            task.cancel()
        for gateway in self.gateways:
            gateway.die()


@pytest.fixture(autouse=True)
def _virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_kafka.groups.led.board.monotonic_ms", now_ms)
    monkeypatch.setattr("penstock_kafka.groups.led.board.random_fraction", random.Random(1).random)


def _run(seed: int) -> None:
    async def work() -> None:
        world = _World(seed)
        try:
            for _ in range(STEPS):
                await world.step()
            await world.settle()
        finally:
            world.close()

    run_virtually(work())


@pytest.mark.parametrize("seed", SEEDS)
def test_no_generation_has_two_minds_and_every_task_is_run_in_the_end(seed: int) -> None:
    _run(seed)


@pytest.mark.minutes
@pytest.mark.parametrize("seed", range(100, 400))
def test_no_generation_has_two_minds_for_many_seeds(seed: int) -> None:
    _run(seed)


@pytest.mark.minutes
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_defect_is_found_when_one_is_put_in(mutant: mutants.Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.put_in(monkeypatch)
    for seed in range(100, 160):
        try:
            _run(seed)
        except AssertionError:
            return
    pytest.fail("no seed finds it")
