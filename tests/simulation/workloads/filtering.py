"""Readers with a filter by tag, on a topic whose refs carry their tags, and which small appends roll into pages.

Each reader sees at every answer whether it got exactly what matches, whether it moved on, and whether it was armed only
at the end. The topic is not truncated or made anew.
"""

from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.filtered_reader import FilteredReader
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.service.simulation import Simulation

_TOPIC = "tagged"


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    partitions = random.choice([1, 2])
    topic = simulation.topic(_TOPIC, partitions=partitions, index_tags=random.random() < 0.8)
    simulation.use_wake_ups(is_faulty=False)
    choices = ProducerChoices(
        records=[10, 30],
        pace_ms=[5.0, 50.0],
        acks=Acks.QUORUM,
        is_batching=random.random() < 0.5,
        is_tagging=True,
    )
    start_producers(simulation, topic, [f"tp{number}" for number in range(random.choice([1, 3]))], choices)
    for tag in random.sample("0123456789", random.choice([1, 3])):
        reader = FilteredReader(simulation, f"fr{tag}", topic, partitions, tag)
        reader.start()
        simulation.final_checks.append(reader.check_end)
