"""Quick workers of a share group, on a network that brings most calls twice and a driver that repeats many updates.

A copy of an acquire may lock later records under the id of a lock that is gone, and meet a late copy of its accept.
"""

from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.engine.faults import Fault
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.choices import repeating_habits
from tests.simulation.workloads.sharing.worked_group import WorkedGroup

_GROUP, _TOPIC = "repeaters", "repeated"
_REPEATED_RATE = 0.3


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.faults.set_rates({**simulation.faults.rates, Fault.REPEATED: _REPEATED_RATE})
    topic = simulation.topic(_TOPIC, partitions=1)
    group = WorkedGroup.put(simulation, _GROUP, topic, {"lock_ms": 4_000, "retry_backoff_ms_max": 4_000})
    producer = SimulatedProducer(simulation, "re", topic, records=100, acks=Acks.QUORUM, pace_ms=100.0)
    producer.start()
    group.start_workers([f"re{number}" for number in range(random.choice([2, 4]))], repeating_habits(random), (8, 16))
    simulation.final_checks.append(group.drain)
