"""How far a mirror is behind, while a function of one of both sides is killed each second.

Time is simulated, so the figures are those of the locks, pauses and rests in queues, and each run has the same ones.
"""

from statistics import quantiles

import pytest

from penstock_core.limits import PUSH_LOCK_MS
from penstock_core.mirror.push import MirrorPush, PushAnswer
from penstock_core.push import lane
from penstock_core.push.batch import Failed
from penstock_core.push.targets.target import StageTarget
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.push.lane_work import LaneHold
from penstock_service.records.produce import ProduceEntry, produce
from tests.simulation.engine.faults import Fault
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.push_service import PushService, PushTroubles
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.mirroring import MIRROR, SOURCE, MirrorRun

_PARTITIONS = 6
_RATE = 50  # appends a second
_LASTS_MS = 20_000.0
_KILL_EACH_MS = 1_000.0
_WAIT_MS = 5.0


class _Lags:
    """A source and its mirror, with one record an append. `of` are the milliseconds that each was missing there.

    With `spares_first`, no delivery dies in its first call, which lets its message come again soon.
    """

    def __init__(self, seed: int, *, spares_first: bool = True) -> None:
        self.simulation = simulation = Simulation(seed)
        simulation.faults.set_rates(dict.fromkeys(Fault, 0.0))
        simulation.faults.latency_ms, simulation.faults.sluggish = (2.0, 10.0), ""
        simulation.lost_answer_rate = 0.0
        simulation.topic(SOURCE, partitions=_PARTITIONS)
        self._run = MirrorRun(simulation)
        self._run.lost_rate = self._run.doubled_rate = self._run.slow_ms = 0.0
        assert isinstance(simulation.stores.targets, MemoryTargets)
        simulation.stores.targets.stage = self._answer
        simulation.storage.sure.add("targets")
        target = {"stage": {"url": "https://b.example", "prefix": "m."}}
        wish = SubscriptionWish(topics=[SOURCE], target=target, settings={"mode": "ordered", "start": "earliest"})
        put_subscription(simulation.bare, MIRROR, wish)
        self._service = PushService(simulation, [SOURCE], PushTroubles())
        self._appended_ms: dict[tuple[int, int], float] = {}
        self._mirrored: dict[int, int] = {}
        self.of: list[float] = []
        self.kills = 0
        self._spares_first = spares_first

    def run(self) -> None:
        """The whole run: all that was appended is mirrored in the end."""
        self._service.start()
        self.simulation.work("producer", self._produce)
        self.simulation.scheduler.spawn("killer", self._kill)
        self.simulation.scheduler.run()
        self._service.drain()
        assert not self._appended_ms

    def _produce(self) -> None:
        simulation = self.simulation
        for number in range(int(_LASTS_MS / 1_000 * _RATE)):
            simulation.scheduler.spawn(f"append {number}", lambda number=number: self._append(number))  # type: ignore[misc]
            simulation.scheduler.pause(1_000 / _RATE)
        simulation.scheduler.pause(10_000.0)

    def _append(self, number: int) -> None:
        entry = ProduceEntry(topic=SOURCE, partition=number % _PARTITIONS, data=encode([NewRecord(1, None, b"x")]))
        [done] = self.simulation.call(lambda it: produce(it, [entry], Acks.QUORUM).all_ok(), is_read=False)
        self._appended_ms[entry.partition, done.base_offset] = self.simulation.scheduler.now_ms
        self._note(entry.partition, 0)

    def _answer(self, target: StageTarget, push: MirrorPush) -> PushAnswer | Failed:
        answer = self._run.answer(target, push)
        if isinstance(answer, PushAnswer):
            self._note(push.partition, answer.next_offset)
        return answer

    def _note(self, partition: int, end: int) -> None:
        end = self._mirrored[partition] = max(end, self._mirrored.get(partition, 0))
        for key in [key for key in self._appended_ms if key[0] == partition and key[1] < end]:
            self.of.append(self.simulation.scheduler.now_ms - self._appended_ms.pop(key))

    def _kill(self) -> None:
        """Kill a function that pushes, and one that takes pushes, in turns, in the middle of its work."""
        scheduler = self.simulation.scheduler
        while scheduler.now_ms < _LASTS_MS:
            scheduler.pause(_KILL_EACH_MS * scheduler.random.uniform(0.5, 1.5))
            ends_ms = scheduler.now_ms + _KILL_EACH_MS
            while scheduler.now_ms < ends_ms:
                busy = self._pushing if self.kills % 2 else self._run.appending
                if busy:
                    victim = scheduler.random.choice([*busy])
                    assert isinstance(victim, SimulatedInstance)
                    victim.die()
                    self.kills += 1
                    break
                scheduler.pause(_WAIT_MS)

    @property
    def _pushing(self) -> list[object]:
        queue = self._service.queue._messages
        return [
            each
            for each, message in self._service.working.items()
            if not self._spares_first or queue[message.message_id].hidden_until_ms < message.hidden_until_ms
        ]

    def figures(self) -> tuple[float, float]:
        """The median and the 99th percentile."""
        cuts = quantiles(self.of, n=100)
        print(
            f"{self.kills} kills, {len(self.of)} records: {cuts[49]:.0f} ms, {cuts[98]:.0f} ms, {max(self.of):.0f} ms"
        )
        return cuts[49], cuts[98]


@pytest.mark.parametrize("seed", range(2))
def test_mirror_is_seconds_behind_while_functions_are_killed_each_second(seed: int) -> None:
    lags = _Lags(seed)
    lags.run()
    median_ms, high_ms = lags.figures()
    assert lags.kills > _LASTS_MS / _KILL_EACH_MS / 2
    assert median_ms < 2_000
    assert high_ms < 10_000


def test_mirror_is_a_minute_behind_with_the_locks_of_other_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "_mirror_lock_ms", lambda _: PUSH_LOCK_MS)
    monkeypatch.setattr(LaneHold, "hide_until", lambda _, until_ms: None)
    monkeypatch.setattr(LaneHold, "renew", lambda _, has_progressed: None)
    lags = _Lags(0, spares_first=False)
    lags.run()
    assert lags.figures()[1] > 10_000
