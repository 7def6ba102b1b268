"""Operators write schedules while runs go on, by messages and each minute, two at once at times.

Messages are lost, doubled and late, instances die, answers are lost, and clocks differ. Topics get more partitions,
whose keys move at once or wait, and one is deleted and made anew. The oracle sees each effect (oracle/schedules.py).
"""

from collections.abc import Callable
from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import TopicName
from penstock_core.log.timer import DueSecond
from penstock_core.schedules.schedule import ScheduledRecord, starts_runs
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.schedules.put_schedule import ScheduleWish, delete_schedule, put_schedule
from penstock_service.schedules.run_schedules import run_schedules
from penstock_service.timers.promote import await_second
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.simulation.oracle.schedules import MINUTE_MS, ScheduleWatch
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_TOPICS = ("clock-a", "clock-b")
_NAMES = ("s0", "s1", "s2", "s3", "s4")
_BUDGET_MS = 20_000.0
_TIMEOUT_MS = 58_000.0
_LATE_EFFECTS_MS = 60_000.0


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    watch = ScheduleWatch(simulation)
    simulation.storage.observers.append(watch.observe)
    for name in _TOPICS:
        simulation.oracle.log.topics_of_the_service.add(name)
        simulation.claims.topic_changes[TopicName(name)] = [(0.0, 0.0)]  # no client sends its records
        waits = random.random() < 0.5
        simulation.topic(name, partitions=2, **({"ordering_on_change": "wait"} if waits else {}))
    for number in range(random.choice([1, 2])):
        simulation.work(f"operator{number}", lambda: _operate(simulation))
    for number in range(random.choice([1, 2])):
        simulation.scheduler.spawn(f"seconds{number}", lambda: _take_messages(simulation))
    for number in range(random.choice([1, 1, 2])):
        simulation.scheduler.spawn(f"minutes{number}", lambda: _run_each_minute(simulation))
    simulation.final_checks.append(lambda: _check(simulation, watch))


def _operate(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    for number in range(random.choice([10, 30])):
        simulation.scheduler.pause(random.choice([0.0, 200.0, *[MINUTE_MS * random.random()] * 3]))
        name, topic = random.choice(_NAMES), random.choice(_TOPICS)
        record = ScheduledRecord(key=random.choice([None, b"%d" % number]), value=b"%s %d" % (name.encode(), number))
        wish = ScheduleWish(cron=f"*/{random.choice([1, 1, 2])} * * * *", topic=topic, record=record)
        acts: list[Callable[[Instance], object]] = [
            *[partial(put_schedule, name=name, wish=wish)] * 6,
            partial(put_schedule, name=name, wish=ScheduleWish(record=record)),
            partial(put_schedule, name=name, wish=ScheduleWish(is_enabled=random.random() < 0.5)),
            partial(delete_schedule, name=name),
            partial(alter_topic, name=topic, partitions=random.choice([3, 5]), config={}),
        ]
        if random.random() < 0.1:
            acts = [lambda each: delete_topic(each, _TOPICS[1])]
            simulation.attempt("not deleted", acts[0])
            acts = [lambda each: create_topic(each, _TOPICS[1], 2, {})]
        simulation.attempt("not done", random.choice(acts))


def _take_messages(simulation: Simulation) -> None:
    triggers, random = simulation.stores.timer_triggers, simulation.scheduler.random
    assert isinstance(triggers, MemoryTimerTriggers)
    while not simulation.is_over:
        mine = next((each for each in triggers.seconds if starts_runs(each[0])), None)
        if mine is None:
            simulation.scheduler.pause_between_polls(1_000.0)
            continue
        triggers.seconds.remove(mine)
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            late_ms = mine[1] + random.choice([0.0, 500.0, 5_000.0])
            simulation.scheduler.spawn("schedules", partial(_run_at, simulation, mine[0]), delay_ms=late_ms)


def _run_at(simulation: Simulation, second: DueSecond) -> None:
    def run(instance: Instance) -> object:
        if await_second(instance, second):
            return run_schedules(instance, budget_ms=_BUDGET_MS, is_each_minute=False)
        return None

    try:
        simulation.call(run, is_read=False, is_judged=False)
    except PenstockError as error:
        simulation.scheduler.note("not run", error)


def _run_each_minute(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.scheduler.pause(random.uniform(0.0, MINUTE_MS))
    while not simulation.is_over:
        simulation.attempt(
            "not run", lambda each: run_schedules(each, budget_ms=_BUDGET_MS), timeout_ms=_TIMEOUT_MS, is_judged=False
        )
        simulation.scheduler.pause(MINUTE_MS)


def _check(simulation: Simulation, watch: ScheduleWatch) -> None:
    """Faults are over. What was missed comes once, and then nothing is due."""
    simulation.jump(_LATE_EFFECTS_MS)
    stored = {each.name: each for each in simulation.stores.schedules.list("", 1_000)}
    expect(stored == watch.known, f"the schedules are not what their effects have left: {stored}, {watch.known}")
    simulation.jump(5 * MINUTE_MS)
    to = simulation.undisturbed()
    due = len([each for each in stored.values() if each.is_enabled])
    done = run_schedules(to, budget_ms=_BUDGET_MS)
    expect(done.delivered + done.given_up == due, f"{due} schedules are due, and the run did {done}")
    expect(done.failures + done.refused == 0, f"schedules cannot run: {done}")
    again = run_schedules(to, budget_ms=_BUDGET_MS)
    expect(again.delivered + again.given_up == 0, f"a missed run came twice: {again}")
