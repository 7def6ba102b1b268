"""Dead letters go back by redrives that are killed halfway, and run twice at once, while workers bury more of them.

Records that come back may be rejected again, and be redriven again. Some redrives move them to another topic.
"""

from penstock_core.errors import PenstockError
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.dead_letters.redrive import Redriven, RedriveWish, redrive
from tests.simulation.clients.share_worker import WorkerHabits
from tests.simulation.oracle.redrives import RedriveOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.worked_group import WorkedGroup
from tests.support.service import batch

_GROUP, _TOPIC, _DEAD, _ELSEWHERE = "redriven", "redriven", "redriven.dead", "redriven.elsewhere"
_REDRIVES_MAX = 100
_PAUSE_MS = 61_000.0  # longer than records wait that cannot be read


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic(_TOPIC, partitions=random.choice([1, 2]))
    simulation.topic(_ELSEWHERE, partitions=1)
    simulation.oracle.log.topics_of_the_service |= {_TOPIC, _ELSEWHERE}  # no producer's claims hold there
    # No history of these runs is judged: it would take a record that comes back for a second copy.
    simulation.claims.topic_changes[_TOPIC] = [(0.0, 0.0)]
    config: dict[str, object] = {
        "lock_ms": 1_000,
        "retry_backoff_ms_min": 1,
        "retry_backoff_ms_max": 1_000,
        "dead_letter_topic": _DEAD,
        "deliveries_max": random.choice([1, 2]),
    }
    group = WorkedGroup.put(simulation, _GROUP, topic, config)
    oracle = RedriveOracle(simulation, simulation.bare.topic_cache.read_through(_DEAD).topic_id)
    habits = WorkerHabits(
        records_max=(2, 5),
        work_ms=(1.0, 50.0),
        death_rate=random.choice([0.0, 0.3]),
        doubled_rate=0.0,
        poison=None,
        bad=random.choice(["3", "7"]),
    )
    simulation.work("rp", lambda: _write(simulation, topic))
    group.start_workers([f"rw{number}" for number in range(random.choice([1, 3]))], habits)
    to = random.choice([None, None, _ELSEWHERE])
    for number in range(random.choice([1, 2])):
        simulation.work(f"redriver{number}", lambda: _redrive_now_and_then(simulation, to))
    simulation.final_checks.append(lambda: _finish(simulation, group, oracle))


def _write(simulation: Simulation, topic: str) -> None:
    random = simulation.scheduler.random
    for number in range(random.choice([10, 30])):
        simulation.scheduler.pause(random.uniform(0.0, 200.0))
        entry = ProduceEntry(topic=topic, partition=0, data=batch(f"r-{number}"))

        def write(instance: Instance, entry: ProduceEntry = entry) -> object:
            return produce(instance, [entry], Acks.QUORUM)

        try:
            simulation.call(write, is_read=False)
        except PenstockError as error:
            simulation.scheduler.note("not written", error)


def _redrive_now_and_then(simulation: Simulation, to: str | None) -> None:
    random = simulation.scheduler.random
    for _ in range(random.choice([3, 6])):
        simulation.scheduler.pause(random.choice([100.0, 2_000.0, 61_000.0]))
        wish = RedriveWish(to=to, records_max=random.choice([1, 5, 500]))

        def run(instance: Instance, wish: RedriveWish = wish) -> Redriven:
            return redrive(instance, _DEAD, wish)

        try:
            done = simulation.call(run, is_read=False, is_judged=False)  # its hidden group is no effect
        except PenstockError as error:
            simulation.scheduler.note("not redriven", error)
            continue
        simulation.scheduler.note("redriven", done)


def _finish(simulation: Simulation, group: WorkedGroup, oracle: RedriveOracle) -> None:
    """Accept what is left, then move all dead letters elsewhere."""
    group.drain()
    instance = simulation.undisturbed()
    for _ in range(_REDRIVES_MAX):
        done = redrive(instance, _DEAD, RedriveWish(to=_ELSEWHERE, records_max=500))
        if not done.remaining:
            break
        simulation.jump(_PAUSE_MS)
    expect(not done.remaining, f"dead letters remain after {_REDRIVES_MAX} redrives: {done}")
    oracle.check_end()
