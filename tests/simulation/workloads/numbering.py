"""More idempotent producers of one partition than its head keeps: they leave it, come back, and repeat themselves."""

from penstock_core.limits import HEAD_PRODUCERS_KEPT
from tests.simulation.producer import SimulatedProducer
from tests.simulation.reader import SimulatedReader
from tests.simulation.world import World


def install(world: World) -> None:
    random = world.scheduler.random
    topic = world.topic("numbered", partitions=1)
    for number in range(HEAD_PRODUCERS_KEPT + random.choice([2, 10])):
        SimulatedProducer(
            world,
            f"n{number}",
            topic,
            records=random.choice([2, 4]),
            acks=world.acks_allowed[0],
            pace_ms=random.choice([10.0, 1_000.0]),
            max_in_flight=1,
            is_batching=False,
            is_idempotent=True,
        ).start()
    SimulatedReader(world, "nr", topic, is_topic_stable=True).start()
