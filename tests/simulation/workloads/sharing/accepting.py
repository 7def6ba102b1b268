"""Workers of a share group accept in transactions: outputs, offsets and acceptances in one commit.

Two acceptors may have one transactional id. Plain workers accept without transactions, and take over locks that end.
"""

from functools import partial

from penstock_core.ids import TransactionalId
from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.accepting_worker import AcceptingWorker
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.share_worker import ShareWorker
from tests.simulation.oracle.share_outputs import ShareOutputs
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.choices import by_last_digit, draw_config, draw_habits
from tests.simulation.workloads.sharing.worked_group import WorkedGroup

_GROUP, _TOPIC, _OUTPUTS, _DEAD = "accepters", "accepted", "accepted.outputs", "accepted.dead"


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic(_TOPIC, partitions=random.choice([1, 2]))
    simulation.topic(_OUTPUTS, partitions=1)
    simulation.oracle.log.topics_of_the_service.add(_OUTPUTS)
    config = draw_config(random, _DEAD)
    group = WorkedGroup.put(simulation, _GROUP, topic, config)
    outputs = ShareOutputs(simulation, group.oracle)
    producer = SimulatedProducer(
        simulation,
        "ac",
        topic,
        records=random.choice([10, 30]),
        acks=Acks.QUORUM,
        pace_ms=random.choice([1.0, 100.0, 500.0]),
        key_of=by_last_digit if config["ordering"] == "key" else None,
    )
    producer.start()
    habits = draw_habits(random)
    group.start_workers([f"aw{number}" for number in range(random.choice([1, 3]))], habits)
    has_zombies = random.random() < 0.4

    def live(number: int) -> None:
        name = TransactionalId(f"acceptor{0 if has_zombies else number}")
        for life in range(random.choice([1, 3])):
            worker = ShareWorker(simulation, group.oracle, _GROUP, f"at{number}.{life}", habits)
            AcceptingWorker(simulation, worker, outputs, name, _OUTPUTS).run(rounds=random.choice([4, 8]))

    for number in range(random.choice([1, 2, 3])):
        simulation.work(f"at{number}", partial(live, number))
    simulation.final_checks.append(group.drain)
    simulation.final_checks.append(outputs.check_end)
