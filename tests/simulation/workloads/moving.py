"""A topic moves to its mirror, while producers write to both sides, and operators get in each other's way.

Operators promote at once, or give up, or die between two steps. Their requests come late, from moves that are
over. Now and then one counts the source as lost in the middle. G14 is broken if a partition that was promoted by a
move grows at its source, or lacks a record.
"""

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.mirror.push import HeadMove, PlannedPromotion
from penstock_service.mirror.move_topic import move_topic, reopen_topic
from penstock_service.mirror.promote_topic import promote_topic, refuse_move
from penstock_service.push.admin.pause_subscription import resume_subscription
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads import mirroring
from tests.simulation.workloads.mirroring import MIRROR, MIRRORED, SOURCE, MirrorRun, planned_of

_STEPS_MAX = 60


def install(simulation: Simulation) -> None:
    mirroring.install_with(simulation, _install_operators)


def _install_operators(simulation: Simulation, run: MirrorRun, lasts_ms: float) -> None:
    random = simulation.scheduler.random
    for number in range(random.choice([1, 1, 2])):
        operator = _Operator(simulation, run)
        simulation.work(f"operator{number}", lambda operator=operator: operator.run(lasts_ms))  # type: ignore[misc]
    if random.random() < 0.2:
        simulation.work("promoter", lambda: run.promote(lasts_ms))


class _Operator:
    """Moves the topic step by step, until it is promoted, or he is tired of it."""

    def __init__(self, simulation: Simulation, run: MirrorRun) -> None:
        random = simulation.scheduler.random
        self._run, self._timers = run, run.timers
        self._simulation = simulation
        self._random = random
        self._is_patient = random.random() < 0.5
        self._late_rate = random.choice([0.0, 0.3])
        self._give_up_rate = random.choice([0.0, 0.3, 0.6])
        self._late_ms = random.choice([500.0, 30_000.0])

    def run(self, lasts_ms: float) -> None:
        scheduler = self._simulation.scheduler
        scheduler.pause(self._random.uniform(0.05, 0.8) * lasts_ms)
        for _ in range(_STEPS_MAX):
            try:
                if self._step():
                    return
            except PenstockError as error:
                scheduler.note("no move", error)
            scheduler.pause(self._random.uniform(50.0, 3_000.0))

    def _step(self) -> bool:
        simulation = self._simulation
        mirrored = simulation.stores.topics.get(MIRRORED)
        if mirrored is None:
            return False
        begun_ms = simulation.scheduler.now_ms
        moved = simulation.call(lambda it: move_topic(it, SOURCE, MIRROR), is_read=False, is_judged=False)
        simulation.count("topic moved")
        has_timers = self._timers is None or self._timers.moved(moved, mirrored.topic_id, begun_ms)
        planned = planned_of(moved, mirrored)
        if self._random.random() < self._late_rate:
            delay_ms = self._random.uniform(0.0, self._late_ms)
            simulation.scheduler.spawn("late promotion", lambda: self._promote_late(planned), delay_ms=delay_ms)
        if self._random.random() < self._give_up_rate:
            return self._give_up(moved.note.number)
        if self._is_patient and (any(each.lag for each in moved.partitions) or not has_timers):
            if not has_timers and self._random.random() < 0.1:  # a resume lets the source tell them all anew
                self._resume()
            return False
        done = simulation.call(lambda it: promote_topic(it, MIRRORED, planned), is_read=False, is_judged=False)
        simulation.count("move promoted" if done.is_whole else "move not equal")
        return done.is_whole

    def _resume(self) -> None:
        """Let the source tell all anew. One that dies behind the new version has sent no message: the look does."""
        try:
            self._simulation.call(lambda it: resume_subscription(it, MIRROR), is_read=False, is_judged=False)
        except PenstockError as error:
            self._simulation.scheduler.note("not asked", error)
            self._run.has_lost_a_resume = True

    def _promote_late(self, planned: PlannedPromotion) -> None:
        self._simulation.attempt("no late promotion", lambda it: promote_topic(it, MIRRORED, planned), is_judged=False)
        self._simulation.count("late promotion")

    def _give_up(self, number: int) -> bool:
        simulation = self._simulation
        simulation.call(lambda it: refuse_move(it, MIRRORED, number), is_read=False, is_judged=False)
        simulation.count("move refused")
        if self._random.random() < 0.3:
            return False  # he dies here
        simulation.call(lambda it: reopen_topic(it, SOURCE, number), is_read=False, is_judged=False)
        simulation.count("topic reopened")
        delay_ms = self._random.uniform(0.0, self._late_ms)
        simulation.scheduler.spawn("late move", lambda: self._move_late(number), delay_ms=delay_ms)
        return self._random.random() < 0.5

    def _move_late(self, number: int) -> None:
        """The update of a function that was frozen before it."""
        source = self._simulation.stores.topics.get(SOURCE)
        assert source is not None
        key = PartitionKey(source.topic_id, self._random.choice(source.all_partitions()))
        move = HeadMove(number=number, log_id="late", now_ms=EPOCH_MS)
        self._simulation.attempt("no late move", lambda it: it.stores.log.move(key, move), is_judged=False)
        self._simulation.count("late move")
