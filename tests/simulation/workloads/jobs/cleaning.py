"""A topic of `cleanup_policy=compact` is written with few keys and many tombstones, and cleaned meanwhile."""

from dataclasses import replace
from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.records.produce import ProduceEntry, produce
from tests.simulation.engine.timing import EPOCH_MS
from tests.simulation.service.simulation import Simulation

TOPIC = "latest"
DELETE_RETENTION_MS = 2_000


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.topic(TOPIC, partitions=1, cleanup_policy="compact")
    [topic] = [each for each in simulation.stores.topics.list() if each.name == TOPIC]
    # Below what the API allows, as runs here are short.
    short = replace(topic, config=replace(topic.config, delete_retention_ms=DELETE_RETENTION_MS))
    simulation.stores.topics.replace(topic, short)
    settings = CompactionSettings(
        age_ms_min=0,
        refs_min=random.choice([2, 16]),
        ref_bytes=random.choice([200, 1_000]),
        segment_bytes=random.choice([1_500, 5_000]),
        lease_ms=random.choice([50, 200, 2_000]),
        dirty_share_min=random.choice([0.0, 0.3]),
        keys_max=random.choice([2, 100]),
    )

    def write() -> None:
        for number in range(50):
            simulation.scheduler.pause(random.uniform(0.0, 300.0))
            records = [
                NewRecord(
                    EPOCH_MS + int(simulation.scheduler.now_ms),
                    random.choice([b"a", b"%d" % (number // 5), b"%d" % (number // 5), None]),
                    random.choice([b"%d" % number, None]),
                )
                for _ in range(random.choice([1, 3]))
            ]
            entry = ProduceEntry(topic=TOPIC, partition=0, data=encode(records))
            try:
                simulation.call(partial(produce, entries=[entry], acks=Acks.QUORUM), is_read=False)
            except PenstockError as error:
                simulation.scheduler.note("not written", error)

    def clean() -> None:
        for _ in range(40):
            simulation.scheduler.pause(random.uniform(10.0, 600.0))
            try:
                done = simulation.call(
                    partial(compact, topic_name=TOPIC, partition=0, settings=settings, budget_ms=20_000.0),
                    is_read=False,
                )
            except PenstockError as error:
                simulation.scheduler.note("not cleaned", error)
            else:
                simulation.scheduler.note("cleaned", done.runs, done.refused, done.failures)

    for number in range(2):
        simulation.work(f"keyed{number}", write)
    for number in range(random.choice([1, 2])):
        simulation.work(f"cleaner{number}", clean)
