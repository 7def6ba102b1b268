"""Small refs are merged while others write, read and remove them: by one job or two, killed anywhere, with an archive
that may be away for a while."""

from functools import partial

from penstock_broker.compact import compact, partitions_of
from penstock_core.compaction import CompactionSettings
from penstock_core.errors import PenstockError
from tests.simulation.producer import SimulatedProducer
from tests.simulation.reader import SimulatedReader
from tests.simulation.world import World

_BUDGET_MS = 20_000.0


def install(world: World) -> None:
    random = world.scheduler.random
    topic = world.topic("merged", partitions=1)
    for number in range(6):
        SimulatedProducer(
            world,
            f"m{number}",
            topic,
            records=random.choice([20, 40]),
            acks=random.choice(world.acks_allowed),
            pace_ms=random.choice([60.0, 200.0]),
            is_batching=False,
        ).start(delay_ms=world.later() if world.lasts_ms and number > 3 else 0.0)
    SimulatedReader(world, "mr", topic, is_topic_stable=True).start()
    settings = CompactionSettings(
        age_ms_min=random.choice([0, 0, 500]),
        refs_min=random.choice([2, 2, 16]),
        ref_bytes=random.choice([200, 1_000, 10_000]),
        segment_bytes=random.choice([1_500, 1_500, 5_000]),  # 80 bytes an append: so few gets that a run may live
        lease_ms=random.choice([50, 200, 2_000]),
    )

    def run() -> None:
        for _ in range(random.choice([10, 25])):
            world.scheduler.pause(random.uniform(10.0, 600.0 + world.lasts_ms / 12))
            for name, partition in partitions_of(world.stores, ()):
                try:
                    done = world.call(
                        partial(compact, topic_name=name, partition=partition, settings=settings, budget_ms=_BUDGET_MS),
                        is_read=False,
                    )
                except PenstockError as error:
                    world.scheduler.note("not compacted", error)
                else:
                    world.scheduler.note("compacted", name, partition, done.runs, done.refused, done.failures)

    def trouble() -> None:
        world.scheduler.pause(random.uniform(0.0, 3_000.0))
        world.zone_trouble["archive"] = random.choice(["refuses", "hangs"])
        world.scheduler.pause(random.uniform(0.0, 2_000.0))
        del world.zone_trouble["archive"]

    for number in range(random.choice([1, 2])):
        world.work(f"compaction{number}", run)
    if random.random() < 0.3:
        world.work("archive trouble", trouble)
