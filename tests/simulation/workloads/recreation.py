"""A topic is written, read, deleted and created again, with other numbers of partitions, by one or two operators."""

from tests.simulation.admin import SimulatedAdmin
from tests.simulation.producer import SimulatedProducer
from tests.simulation.reader import SimulatedReader
from tests.simulation.world import World

TOPIC = "fleeting"


def install(world: World) -> None:
    random = world.scheduler.random
    world.topic(TOPIC, partitions=2)
    world.claims.topic_changes[TOPIC] = []
    for number in range(2):
        SimulatedProducer(
            world,
            f"f{number}",
            TOPIC,
            records=random.choice([20, 40]),
            acks=random.choice(world.acks_allowed),
            pace_ms=random.choice([20.0, 100.0]),
        ).start()
    SimulatedReader(world, "fr", TOPIC, is_topic_stable=False).start()
    admin = SimulatedAdmin(world, "creator")

    def recreate() -> None:
        for _ in range(random.choice([1, 3])):
            world.scheduler.pause(random.uniform(50.0, 1_000.0 + world.lasts_ms / 5))
            admin.delete(TOPIC)
            world.scheduler.pause(random.choice([0.0, 100.0]))
            admin.create(TOPIC, random.choice([1, 2, 3]))

    def widen() -> None:
        for _ in range(random.choice([0, 2, 4])):
            world.scheduler.pause(random.uniform(50.0, 800.0))
            SimulatedAdmin(world, "widener").add_partitions(TOPIC, random.choice([2, 3, 4]))

    world.work("creator", recreate)
    world.work("widener", widen)
