"""Jobs merge, clean and move refs, expire them, and sweep what no ref names."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.compaction.tail_move import live_tail
from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import SWEEP_LIVE_MAX, UNLIMITED
from penstock_core.log.ref import Tier
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.clean_topics import CleaningResult, clean_topics
from penstock_service.compaction.compact import CompactionResult, compact, partitions_of
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from tests.simulation.clients.producer import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import GRACE_MS, Simulation

CLEANED_TOPIC = "latest"
DELETE_RETENTION_MS = 2_000
_BUDGET_MS = 20_000.0
_LEASE_MS_MAX = 2_000
_SETTLED_MS = 10_000.0  # longer than a lease, and than clocks differ
_RUNS_MAX = 10  # a run rolls a few pages of a tail, which may have become long
_RETENTION_LASTS_MS = 150_000.0
_SWEEP_LASTS_MS = 120_000.0
_BUDGET_MS = 20_000.0


def compaction(simulation: Simulation) -> None:
    """One or two jobs merge small refs while clients write, read and remove them.

    A job may be killed anywhere, and the archive may be away for a while.
    """
    random = simulation.scheduler.random
    topic = simulation.topic("merged", partitions=1)
    choices = ProducerChoices(records=[20, 40], pace_ms=[60.0, 200.0], is_batching=False)
    start_producers(simulation, topic, ["m0", "m1", "m2", "m3"], choices)
    start_producers(simulation, topic, ["m4", "m5"], choices, is_late=bool(simulation.lasts_ms))
    SimulatedReader(simulation, "mr", topic, is_topic_stable=True).start()
    settings = CompactionSettings(
        age_ms_min=random.choice([0, 0, 500]),
        refs_min=random.choice([2, 2, 16]),
        ref_bytes=random.choice([200, 1_000, 10_000]),
        segment_bytes=random.choice([1_500, 1_500, 5_000]),  # 80 bytes an append: few enough gets for a run to survive
        lease_ms=random.choice([50, 200, 2_000]),
    )

    def run() -> None:
        for _ in range(random.choice([10, 25])):
            simulation.scheduler.pause(random.uniform(10.0, 600.0 + simulation.lasts_ms / 12))
            for name, partition in partitions_of(simulation.bare, ()):
                done = simulation.attempt(
                    "not compacted",
                    partial(compact, topic_name=name, partition=partition, settings=settings, budget_ms=_BUDGET_MS),
                )
                if done is not None:
                    simulation.scheduler.note("compacted", name, partition, done.runs, done.refused, done.failures)

    def trouble() -> None:
        simulation.scheduler.pause(random.uniform(0.0, 3_000.0))
        simulation.storage.zone_trouble["archive"] = random.choice(["refuses", "hangs"])
        simulation.scheduler.pause(random.uniform(0.0, 2_000.0))
        del simulation.storage.zone_trouble["archive"]

    for number in range(random.choice([1, 2])):
        simulation.work(f"compaction{number}", run)
    if random.random() < 0.3:
        simulation.work("archive trouble", trouble)


def cleaning(simulation: Simulation) -> None:
    """A topic of `cleanup_policy=compact` is written with few keys and many tombstones, and cleaned meanwhile.

    The job cleans it, or the stage's task, which stores in a cursor what its passes cost.
    """
    random = simulation.scheduler.random
    simulation.topic(CLEANED_TOPIC, partitions=1, cleanup_policy="compact")
    [topic] = [each for each in simulation.stores.topics.list() if each.name == CLEANED_TOPIC]
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
            entry = ProduceEntry(topic=CLEANED_TOPIC, partition=0, data=encode(records))
            simulation.attempt("not written", partial(produce, entries=[entry], acks=Acks.QUORUM))

    bytes_per_day = random.choice([20_000, 10**9])
    entries: Sequence[Callable[[Instance], CompactionResult | CleaningResult]] = [
        partial(compact, topic_name=CLEANED_TOPIC, partition=0, settings=settings, budget_ms=_BUDGET_MS),
        partial(clean_topics, settings=settings, budget_ms=_BUDGET_MS, bytes_per_day=bytes_per_day),
    ]

    def clean() -> None:
        for _ in range(40):
            simulation.scheduler.pause(random.uniform(10.0, 600.0))
            done = simulation.attempt("not cleaned", random.choice(entries))
            if isinstance(done, CleaningResult):
                expect(done.bytes_cleaned <= bytes_per_day, "a run cleans more than the bound of a day")
                simulation.scheduler.note("cleaned by the task", done.passes, done.bytes_left, done.failures)
            elif done is not None:
                simulation.scheduler.note("cleaned", done.runs, done.refused, done.failures)

    for number in range(2):
        simulation.work(f"keyed{number}", write)
    for number in range(random.choice([1, 2])):
        simulation.work(f"cleaner{number}", clean)


def tiering(simulation: Simulation) -> None:
    """One or two runs of `tier` at a time move pages and tails to the archive, while few records come, and rolls go on.

    At the end of a run, once faults are over, `tier` leaves no tail in the zones.
    """
    random = simulation.scheduler.random
    topic = simulation.topic("quiet", partitions=1)
    simulation.faults.sluggish = random.choice(
        ["move_tail", "upload", "put_page", "shorten_tail", simulation.faults.sluggish]
    )
    choices = ProducerChoices(records=[10, 20], pace_ms=[40.0, 300.0], max_in_flight=[1], is_batching=False)
    start_producers(simulation, topic, ["q0", "q1", "q2"], choices)
    start_producers(simulation, topic, ["q3", "q4"], choices, is_late=bool(simulation.lasts_ms))
    SimulatedReader(simulation, "qr", topic, is_topic_stable=True).start()
    settings = CompactionSettings(
        age_ms_min=random.choice([0, 0, 300]),
        refs_min=random.choice([2, 1_000]),
        lease_ms=random.choice([50, 200, _LEASE_MS_MAX]),
        zonal_ms_max=random.choice([0, 300, 1_500]),
    )

    def run() -> None:
        for _ in range(random.choice([10, 25])):
            if simulation.lasts_ms and random.random() < 0.5:
                simulation.pause_until_burst()
            simulation.scheduler.pause(random.uniform(10.0, 600.0 + simulation.lasts_ms / 12))
            done = simulation.attempt("not tiered", partial(tier, budget_ms=_BUDGET_MS, settings=settings))
            if done is not None:
                simulation.scheduler.note("tiered", done)

    for number in range(random.choice([1, 2])):
        simulation.work(f"tier{number}", run)
    simulation.final_checks.append(partial(_check_tails, simulation))


def _check_tails(simulation: Simulation) -> None:
    """Check that no ref that a reader may read is left in the zones, of those that are in a tail."""
    simulation.jump(_SETTLED_MS)
    settings = CompactionSettings(age_ms_min=0, zonal_ms_max=0)
    for _ in range(_RUNS_MAX):
        done = tier(simulation.undisturbed(), budget_ms=1_000_000_000, settings=settings)
        expect(done.is_finished and not done.failures and not done.held, f"not everything could be moved: {done}")
    for topic in simulation.stores.topics.list():
        keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
        for key, head in simulation.stores.log.heads(keys).items():
            left = [each for each in live_tail(head) if each.ref.tier is not Tier.ARCHIVE]
            expect(not left, f"the tail of {key} keeps out of the archive what it should not: {left}")


def retention(simulation: Simulation) -> None:
    """Topics keep little and for a short time; retention runs, sometimes twice at once, while settings change."""
    random = simulation.scheduler.random
    simulation.lasts_ms = max(simulation.lasts_ms, _RETENTION_LASTS_MS)
    budget_ms = random.choice([100.0, 20_000.0, 20_000.0])

    def set_retention() -> None:
        """Set values below the bounds of the API, as topics are small. So go past it, but let the oracle observe."""
        for topic in simulation.stores.topics.list():
            config = replace(
                topic.config,
                retention_ms=random.choice([UNLIMITED, 1_000, 20_000, 60_000]),
                retention_bytes=random.choice([UNLIMITED, 0, 500, 2_000]),
            )
            change = partial(simulation.stores.topics.replace, topic, replace(topic, config=config))
            simulation.storage.apply("topics", "replace", change, (topic, replace(topic, config=config)))

    def operate() -> None:
        for _ in range(random.choice([1, 2, 4])):
            set_retention()
            simulation.scheduler.pause(random.uniform(100.0, _RETENTION_LASTS_MS / 2))

    def run() -> None:
        for _ in range(random.choice([3, 6])):
            simulation.scheduler.pause(
                random.choice([random.uniform(100.0, 5_000.0), random.uniform(5_000.0, 70_000.0)])
            )
            simulation.attempt(
                "not retained",
                lambda instance: retain(instance, budget_ms=budget_ms, grace_ms=GRACE_MS),
                is_judged=False,  # a schedule asks for it: its error tells nobody what it has done
            )

    simulation.work("settings", operate)
    for number in range(random.choice([1, 2])):
        simulation.work(f"retention{number}", run)


def sweeps(simulation: Simulation) -> None:
    """One or two sweeps remove objects that no ref names, in rounds of any size, while clients write and read."""
    random = simulation.scheduler.random
    simulation.lasts_ms = max(simulation.lasts_ms, _SWEEP_LASTS_MS)
    live_max = random.choice([SWEEP_LIVE_MAX, SWEEP_LIVE_MAX, 5])

    def run() -> None:
        for _ in range(random.choice([2, 4])):
            if random.random() < 0.8:
                simulation.pause_until_burst()
            else:
                simulation.scheduler.pause(random.uniform(100.0, 60_000.0))
            try:
                simulation.call(
                    lambda instance: sweep(
                        instance,
                        budget_ms=_BUDGET_MS,
                        grace_ms=GRACE_MS,
                        log_start_grace_ms=GRACE_MS,
                        live_max=live_max,
                    ),
                    is_read=False,
                )
                simulation.count("sweep done")
            except PenstockError as error:
                simulation.scheduler.note("not swept", error)

    for number in range(random.choice([1, 1, 2])):
        simulation.work(f"sweep{number}", run)
