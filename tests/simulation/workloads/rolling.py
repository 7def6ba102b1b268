"""Many small appends to one partition by several producers: tails roll under contention, old offsets are read."""

from tests.simulation.producer import SimulatedProducer
from tests.simulation.reader import SimulatedReader
from tests.simulation.world import World


def install(world: World) -> None:
    random = world.scheduler.random
    topic = world.topic("hot", partitions=1)
    world.faults.sluggish = random.choice(["roll", "pages", "heads" if world.lasts_ms else world.faults.sluggish])
    for number in range(random.choice([4, 8, 16])):
        SimulatedProducer(
            world,
            f"h{number}",
            topic,
            records=random.choice([10, 20]),
            acks=world.acks_allowed[0],
            pace_ms=random.choice([1.0, 10.0]),
            max_in_flight=1,
            is_batching=False,
        ).start()
    for number in range(3 if world.lasts_ms else 0):
        SimulatedProducer(
            world,
            f"late{number}",
            topic,
            records=20,
            acks=world.acks_allowed[0],
            pace_ms=10.0,
            is_batching=False,
        ).start(delay_ms=world.later())
    for number in range(2):
        SimulatedReader(world, f"hr{number}", topic, is_topic_stable=True).start()
