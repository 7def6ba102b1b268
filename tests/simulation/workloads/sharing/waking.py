"""Workers of a share group wait for wake-ups, while records come slowly, are released, and wait behind their keys.

Other workers take records, release them and leave.

The locks are long, so that records which come back must wake the workers: no worker may find them by the time. In runs
whose wake-ups are lost, late and doubled, and whose functions die, only the safety net is left.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.share_worker import ShareWorker, WorkerHabits
from tests.simulation.clients.waiting_worker import WaitingWorker
from tests.simulation.engine.faults import Fault
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.worked_group import BACKOFF_MS_MAX, WorkedGroup, by_last_digit

_GROUP, _TOPIC = "sleepers", "sleepers.work"
_LASTS_MS = 150_000.0
_LOSING = (Fault.LATE, Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    is_lossy = random.random() < 0.4
    topic = simulation.topic(_TOPIC, partitions=random.choice([1, 2]))
    wake_ups = simulation.use_wake_ups(is_faulty=is_lossy)
    if not is_lossy:
        rates = simulation.faults.rates
        simulation.faults.set_rates({fault: 0.0 if fault in _LOSING else rate for fault, rate in rates.items()})
    is_by_key = random.random() < 0.4
    config: dict[str, object] = {
        "lock_ms": 300_000,
        "retry_backoff_ms_min": random.choice([1, 300]),
        "retry_backoff_ms_max": BACKOFF_MS_MAX,
        "ordering": "key" if is_by_key else "none",
    }
    group = WorkedGroup.put(simulation, _GROUP, topic, config)
    producer = SimulatedProducer(
        simulation,
        "sl",
        topic,
        records=random.choice([5, 15]),
        acks=Acks.QUORUM,
        pace_ms=random.choice([500.0, 10_000.0]),
        key_of=by_last_digit if is_by_key else None,
    )
    producer.start()
    simulation.work("share time", lambda: simulation.scheduler.pause(_LASTS_MS))
    habits = WorkerHabits(
        records_max=random.choice([(1,), (2, 5)]),
        work_ms=(5.0, 3_000.0),
        death_rate=0.0,
        doubled_rate=0.0,
        poison=None,
        bad=random.choice([None, "3"]),
        acknowledges_at_once=random.choice([0.3, 1.0]),
        lock_ms=(None,),
    )
    for number in range(random.choice([2, 4])):
        worker = WaitingWorker(
            simulation,
            group.oracle,
            ShareWorker(simulation, group.oracle, _GROUP, f"sl{number}", habits),
            wake_ups,
            topic_id=simulation.bare.topic_cache.read_through(topic).topic_id,
            deliver=partial(_deliver_badly, simulation) if is_lossy else _deliver,
            is_promised=partial(_is_promised, simulation, is_lossy=is_lossy),
        )
        worker.start()
    leaving = replace(habits, bad="", acknowledges_at_once=1.0)
    for number in range(random.choice([2, 4])):
        simulation.work(f"lv{number}", partial(_come_and_go, simulation, group, f"lv{number}", leaving))
    simulation.final_checks.append(lambda: _drain(simulation, group))


def _come_and_go(simulation: Simulation, group: WorkedGroup, name: str, habits: WorkerHabits) -> None:
    """Take records, release them, and leave: those that wait must hear of it."""
    random = simulation.scheduler.random
    for number in range(random.choice([3, 6])):
        simulation.scheduler.pause(random.uniform(0.0, 40_000.0))
        ShareWorker(simulation, group.oracle, _GROUP, f"{name}.{number}", habits).run(rounds=1)


def _deliver(wake: Callable[[], None]) -> None:
    wake()


def _deliver_badly(simulation: Simulation, wake: Callable[[], None]) -> None:
    random = simulation.scheduler.random
    for _ in range(random.choice([0, 1, 1, 2])):
        simulation.scheduler.spawn("share wake-up", wake, delay_ms=random.choice([0.0, 100.0, 30_000.0]))


def _is_promised(simulation: Simulation, *, is_lossy: bool) -> bool:
    return not is_lossy and not simulation.counts["function timeout"] and not simulation.counts["no answer"]


def _drain(simulation: Simulation, group: WorkedGroup) -> None:
    """Once the locks that workers forgot are over, all comes again."""
    simulation.jump(301_000.0)
    group.drain()
