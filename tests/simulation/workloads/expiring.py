"""Small appends with a TTL, for weeks: raises and lower retentions, walks, and DynamoDB's TTL in between.

Times are those of the service. Programs that embed it sleep between two storage calls, for minutes or hours: a sleeper
may read a topic before a raise and append long after it. Producers come in bursts around each change of settings.
Retention runs four times a day, so no live ref has expired for long, and no reader may meet a gap.
"""

from collections.abc import Callable
from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import FETCH_BYTES_MAX, TIERED_SWEEP_GRACE_MS, TIERING_MS_MAX, UNLIMITED
from penstock_core.records.codec import decode
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import alter_topic
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.oracle.violation import expect
from tests.simulation.service.instance import Naps
from tests.simulation.service.simulation import GRACE_MS, Simulation

_MINUTE_MS = 60_000.0
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_LASTS_MS = 45 * _DAY_MS
_TIMEOUT_MS = 240_000.0
_BUDGET_MS = 200_000.0
_RETENTIONS_DAYS = (1, 1, 2, 7, 14, 21, 30, UNLIMITED, UNLIMITED)


def install(simulation: Simulation) -> None:
    """One or two topics, whose requests may share an item."""
    random = simulation.scheduler.random
    simulation.naps = Naps(
        rate=random.choice([0.0, 0.05, 0.2]),
        duration_ms=random.choice([(15_000.0, 120_000.0), (20 * _MINUTE_MS, 6 * _HOUR_MS)]),
        stop_monotonic=random.random() < 0.5,
        left=random.choice([2, 4, 8]),  # clients poll meanwhile, which takes steps
    )
    simulation.last_for_days()
    topics = [
        simulation.topic(f"brief{number}", partitions=1, retention_ms=int(random.choice([1, 1, 7]) * _DAY_MS))
        for number in range(random.choice([1, 1, 2]))
    ]
    walks_each_ms = random.choice([0.25, 1.0, 6.0]) * _HOUR_MS
    for topic in topics:
        simulation.work(f"settings of {topic}", partial(_operate, simulation, topic))
        simulation.scheduler.spawn(f"reader of {topic}", partial(_read, simulation, topic))
    jobs: list[tuple[str, float, Callable[[Instance], object]]] = [
        ("retain", 6 * _HOUR_MS, lambda each: retain(each, budget_ms=_BUDGET_MS, grace_ms=GRACE_MS)),
        ("keep", walks_each_ms, lambda each: keep_items(each, budget_ms=random.choice([1.0, _BUDGET_MS]))),
        ("tier", 12 * _HOUR_MS, lambda each: tier(each, budget_ms=_BUDGET_MS, settings=_TIERING)),
        ("sweep", 24 * _HOUR_MS, _sweep),
    ]
    for name, rate_ms, job in jobs:
        simulation.scheduler.spawn(name, partial(_repeat, simulation, rate_ms, job))


_TIERING = CompactionSettings(zonal_ms_max=TIERING_MS_MAX)


def _sweep(instance: Instance) -> object:
    return sweep(instance, budget_ms=_BUDGET_MS, grace_ms=TIERED_SWEEP_GRACE_MS, log_start_grace_ms=GRACE_MS)


def _repeat(simulation: Simulation, rate_ms: float, job: Callable[[Instance], object]) -> None:
    random = simulation.scheduler.random
    while not simulation.is_over:
        simulation.scheduler.pause(rate_ms * random.uniform(0.5, 1.0))
        simulation.attempt("not run", job, timeout_ms=_TIMEOUT_MS)


def _operate(simulation: Simulation, topic: str) -> None:
    """Change the settings now and then, with appends before, meanwhile and after."""
    random = simulation.scheduler.random
    number = 0
    while simulation.scheduler.now_ms < _LASTS_MS:
        for _ in range(random.choice([1, 2, 3])):
            number += 1
            _start_burst(simulation, f"{topic} {number}", topic)
        simulation.scheduler.pause(random.choice([0.0, 5.0, 100.0, 12_000.0, 50 * _MINUTE_MS]) * random.random())
        for _ in range(random.choice([0, 1, 1, 2])):
            days = random.choice(_RETENTIONS_DAYS)
            config: dict[str, int | str] = {"retention_ms": days if days == UNLIMITED else int(days * _DAY_MS)}
            if random.random() < 0.2:
                config["cleanup_policy"] = random.choice(["delete", "compact", "compact,delete"])
            simulation.attempt("not altered", partial(alter_topic, name=topic, partitions=None, config=config))
            simulation.scheduler.pause(random.choice([0.0, 1_000.0, 40 * _MINUTE_MS, 50 * _MINUTE_MS]))
        simulation.scheduler.pause(random.choice([1.0, 5.0, 20.0]) * _DAY_MS * random.random())
    # The verdict reads a compacted topic as one that retention has not touched.
    alone = partial(alter_topic, name=topic, partitions=None, config={"cleanup_policy": "delete"})
    while simulation.attempt("not altered", alone) is None:
        simulation.scheduler.pause(1_000.0)


def _start_burst(simulation: Simulation, name: str, topic: str) -> None:
    random = simulation.scheduler.random
    SimulatedProducer(
        simulation,
        name,
        topic,
        records=random.choice([1, 2, 6]),
        acks=simulation.acks_allowed[0],
        pace_ms=random.choice([1.0, 100.0, 1_000.0]),
        max_in_flight=1,
        is_batching=False,
    ).start()


def _read(simulation: Simulation, topic: str) -> None:
    """Read the whole log now and then. A reader that has begun at the log start meets each offset."""
    random = simulation.scheduler.random
    while not simulation.is_over:
        simulation.scheduler.pause(3 * _DAY_MS * random.random())
        try:
            _read_once(simulation, topic)
        except PenstockError as error:
            simulation.scheduler.note("not read", error)


def _read_once(simulation: Simulation, topic: str) -> None:
    offset = 0
    while True:
        entry = FetchEntry(topic=topic, partition=0, offset=offset, max_bytes=FETCH_BYTES_MAX)
        [found] = simulation.call(
            partial(fetch, entries=[entry], max_bytes=FETCH_BYTES_MAX, min_bytes=0, wait_ms=0),
            is_read=True,
            timeout_ms=_TIMEOUT_MS,
        )
        if isinstance(found, PenstockError):
            start = found.facts.get("log_start_offset")
            expect(not found.facts.get("is_missing"), f"{topic} at {offset} has lost its item: {found}")
            if not isinstance(start, int) or start <= offset:
                raise found
            offset = start
            continue
        assert isinstance(found, FetchResult)
        read = [record.offset for record in decode(memoryview(found.data)) if record.offset >= offset]
        wanted = [*range(max(offset, found.log_start_offset), found.next_offset)]
        expect(read == wanted, f"a read of {topic} from {offset} has a gap: {sorted({*wanted} - {*read})}")
        if found.next_offset >= found.high_watermark:
            simulation.count("read to the end")
            return
        offset = found.next_offset
