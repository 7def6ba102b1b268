"""Concurrent producers and readers of one topic, with lost replies, retries and every kind of acks."""

from tests.simulation.producer import SimulatedProducer
from tests.simulation.reader import SimulatedReader
from tests.simulation.world import World


def install(world: World) -> None:
    random = world.scheduler.random
    topic = world.topic("orders", partitions=random.choice([1, 1, 2, 3]))
    for number in range(random.choice([1, 2, 3])):
        SimulatedProducer(
            world,
            f"p{number}",
            topic,
            records=random.choice([10, 30, 50]),
            acks=random.choice(world.acks_allowed),
            pace_ms=random.choice([1.0, 20.0, 100.0]),
            max_in_flight=random.choice([1, 2]),
        ).start()
    for number in range(4 if world.lasts_ms else 0):
        SimulatedProducer(
            world,
            f"late{number}",
            topic,
            records=random.choice([5, 15]),
            acks=random.choice(world.acks_allowed),
            pace_ms=random.choice([1.0, 100.0]),
        ).start(delay_ms=world.later())
    for number in range(random.choice([1, 2])):
        SimulatedReader(world, f"r{number}", topic, is_topic_stable=True).start()
