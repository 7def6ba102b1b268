"""Small appends with a TTL, for weeks: raises and lower retentions, walks, and DynamoDB's TTL in between.

Times are those of the service. Programs that embed it sleep between two storage calls, for minutes or hours: a sleeper
may read a topic before a raise and append long after it. Producers and transactions come in bursts around each change
of settings. Retention runs four times a day, so no live ref has expired for long, and no reader may meet a gap. Jobs
move refs by their age, merge them whatever their age, and scrub them. Tables of some moments are restored in the end.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import Nonce, TransactionalId
from penstock_core.limits import (
    FETCH_BYTES_MAX,
    TIERED_SWEEP_GRACE_MS,
    TIERING_MS_MAX,
    TRANSACTION_MS_MAX,
    UNLIMITED,
)
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact, partitions_of
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import ProduceEntry
from penstock_service.repair.scrub import scrub
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction, stage
from tests.history import format as history
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.instance import Naps
from tests.simulation.service.simulation import GRACE_MS, Simulation
from tests.simulation.verdict.restored import RestoreCheck

_MINUTE_MS = 60_000.0
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_LASTS_MS = 45 * _DAY_MS
_TIMEOUT_MS = 240_000.0
_BUDGET_MS = 200_000.0
_BYTES_MAX = 1_000_000_000
_RETENTIONS_DAYS = (1, 1, 2, 7, 14, 21, 30, UNLIMITED, UNLIMITED)
_TIERING = CompactionSettings(zonal_ms_max=TIERING_MS_MAX)


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
    partitions = random.choice([1, 1, 2, 3])
    topics = [
        simulation.topic(f"brief{number}", partitions=partitions, retention_ms=int(random.choice([1, 1, 7]) * _DAY_MS))
        for number in range(random.choice([1, 1, 2]))
    ]
    walks_each_ms = random.choice([0.25, 1.0, 6.0]) * _HOUR_MS
    restores = RestoreCheck(simulation)
    simulation.final_checks.append(restores.check)
    for topic in topics:
        operator = _Operator(simulation, restores, topics, partitions)
        simulation.work(f"settings of {topic}", partial(operator.run, topic))
        for partition in range(partitions):
            simulation.scheduler.spawn(f"reader of {topic} {partition}", partial(_read, simulation, topic, partition))
    merging = CompactionSettings(age_ms_min=0, refs_min=random.choice([2, 4]), ref_bytes=random.choice([200, 1_000]))
    merges_each_ms = random.choice([1.0, 3.0, 100.0]) * _DAY_MS
    jobs: list[tuple[str, float, Callable[[Instance], object]]] = [
        ("retain", 6 * _HOUR_MS, lambda each: retain(each, budget_ms=_BUDGET_MS, grace_ms=GRACE_MS)),
        ("keep", walks_each_ms, lambda each: keep_items(each, budget_ms=random.choice([1.0, _BUDGET_MS]))),
        ("tier", 12 * _HOUR_MS, lambda each: tier(each, budget_ms=_BUDGET_MS, settings=_TIERING)),
        ("merge", merges_each_ms, partial(_merge, simulation, merging)),
        ("scrub", 2 * _DAY_MS, lambda each: scrub(each, budget_ms=_BUDGET_MS, budget_bytes=_BYTES_MAX)),
        ("sweep", 24 * _HOUR_MS, _sweep),
    ]
    for name, rate_ms, job in jobs:
        simulation.scheduler.spawn(name, partial(_repeat, simulation, rate_ms, job))


def _merge(simulation: Simulation, settings: CompactionSettings, instance: Instance) -> None:
    for topic, partition in partitions_of(instance, ()):
        if compact(instance, topic, partition, settings, budget_ms=_BUDGET_MS).runs:
            simulation.count("pages merged")


def _sweep(instance: Instance) -> object:
    return sweep(instance, budget_ms=_BUDGET_MS, grace_ms=TIERED_SWEEP_GRACE_MS, log_start_grace_ms=GRACE_MS)


def _repeat(simulation: Simulation, rate_ms: float, job: Callable[[Instance], object]) -> None:
    random = simulation.scheduler.random
    while not simulation.is_over:
        simulation.scheduler.pause(rate_ms * random.uniform(0.5, 1.0))
        simulation.attempt("not run", job, timeout_ms=_TIMEOUT_MS)


class _Operator:
    """Changes the settings of a topic now and then, with appends before, meanwhile and after."""

    def __init__(self, simulation: Simulation, restores: RestoreCheck, topics: Sequence[str], partitions: int) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._restores = restores
        self._topics = topics
        self._partitions = partitions

    def run(self, topic: str) -> None:
        """Goes on for weeks. In the end the topic has `delete` alone."""
        scheduler, random, number = self._simulation.scheduler, self._random, 0
        while scheduler.now_ms < _LASTS_MS:
            for _ in range(random.choice([1, 2, 3])):
                number += 1
                _start_burst(self._simulation, f"{topic} {number}", topic)
            if random.random() < 0.5:
                name = f"{topic} {number} t"
                transact = partial(_transact, self._simulation, name, self._topics, self._partitions)
                self._simulation.work(name, transact)
            scheduler.pause(random.choice([0.0, 5.0, 100.0, 12_000.0, 50 * _MINUTE_MS]) * random.random())
            for _ in range(random.choice([0, 1, 1, 2])):
                self._alter(topic)
            scheduler.pause(random.choice([1.0, 5.0, 20.0]) * _DAY_MS * random.random())
        # The verdict reads a compacted topic as one that retention has not touched.
        alone = partial(alter_topic, name=topic, partitions=None, config={"cleanup_policy": "delete"})
        while self._simulation.attempt("not altered", alone) is None:
            scheduler.pause(1_000.0)

    def _alter(self, topic: str) -> None:
        random = self._random
        days = random.choice(_RETENTIONS_DAYS)
        config: dict[str, int | str] = {"retention_ms": days if days == UNLIMITED else int(days * _DAY_MS)}
        if random.random() < 0.2:
            config["cleanup_policy"] = random.choice(["delete", "compact", "compact,delete"])
        self._simulation.attempt("not altered", partial(alter_topic, name=topic, partitions=None, config=config))
        if days in (30, UNLIMITED) and random.random() < 0.7:
            self._restores.take()  # no walk has come since the raise
        self._simulation.scheduler.pause(random.choice([0.0, 1_000.0, 40 * _MINUTE_MS, 50 * _MINUTE_MS]))


def _start_burst(simulation: Simulation, name: str, topic: str) -> None:
    random = simulation.scheduler.random
    SimulatedProducer(
        simulation,
        name,
        topic,
        records=random.choice([1, 2, 6, 20]),
        acks=simulation.acks_allowed[0],
        pace_ms=random.choice([1.0, 100.0, 1_000.0]),
        max_in_flight=1,
        is_batching=False,
    ).start()


def _transact(simulation: Simulation, name: str, topics: Sequence[str], partitions: int) -> None:
    """Stage records for each partition but the last, and commit all of them up to 15 minutes later.

    Each part has a record for each topic, and they share an item.
    """
    random = simulation.scheduler.random
    values = {(topic, number): f"{name}/{topic}/{number}" for number in range(partitions) for topic in topics}
    sends = [history.Send(where, value) for where, value in values.items()]
    operation = simulation.recorder.invoke(name, history.Function.TXN, sends)
    nonce = Nonce(random.randbytes(16))

    def part_of(partition: int) -> TransactionPart:
        now_ms = EPOCH_MS + int(simulation.scheduler.now_ms)
        entries = [
            ProduceEntry(topic=topic, partition=at, data=encode([NewRecord(now_ms, None, value.encode())]))
            for (topic, at), value in values.items()
            if at == partition
        ]
        return TransactionPart(producer=producer, number=number, entries=entries, acks=Acks.QUORUM, nonce=nonce)

    try:
        begun = simulation.call(partial(begin_transactions, transactional_id=name.replace(" ", "-")), is_read=False)
        producer = TransactionalProducer(transactional_id=TransactionalId(name.replace(" ", "-")), epoch=begun.epoch)
        number = begun.number + 1
        for partition in range(partitions - 1):
            simulation.call(partial(stage, part=part_of(partition), stage_number=partition), is_read=False)
            simulation.scheduler.pause(random.choice([0.0, 1_000.0, TRANSACTION_MS_MAX / partitions]) * random.random())
        last = part_of(partitions - 1)
    except PenstockError as error:
        simulation.scheduler.note("not staged", error)
        simulation.recorder.fail(operation)
        return
    try:
        commit = partial(commit_transaction, last=last, offsets=[], stage_count=partitions - 1)
        simulation.call(commit, is_read=False)
    except PenstockError as error:
        simulation.scheduler.note("not committed", error)
        (simulation.recorder.maybe if error.maybe_applied else simulation.recorder.fail)(operation)
    else:
        simulation.count("transaction committed")
        simulation.recorder.ok(operation)


def _read(simulation: Simulation, topic: str, partition: int) -> None:
    """Read the whole log now and then. A reader that has begun at the log start meets each offset."""
    random = simulation.scheduler.random
    while not simulation.is_over:
        simulation.scheduler.pause(3 * _DAY_MS * random.random())
        try:
            _read_once(simulation, topic, partition)
        except PenstockError as error:
            simulation.scheduler.note("not read", error)


def _read_once(simulation: Simulation, topic: str, partition: int) -> None:
    offset = 0
    while True:
        entry = FetchEntry(topic=topic, partition=partition, offset=offset, max_bytes=FETCH_BYTES_MAX)
        [found] = simulation.call(
            partial(fetch, entries=[entry], max_bytes=FETCH_BYTES_MAX, min_bytes=0, wait_ms=0),
            is_read=True,
            timeout_ms=_TIMEOUT_MS,
        )
        if isinstance(found, PenstockError):
            start = found.facts.get("log_start_offset")
            expect(not found.facts.get("is_missing"), f"{topic} {partition} at {offset} has lost its item: {found}")
            if not isinstance(start, int) or start <= offset:
                raise found
            offset = start
            continue
        assert isinstance(found, FetchResult)
        read = [record.offset for record in decode(memoryview(found.data)) if record.offset >= offset]
        wanted = [*range(max(offset, found.log_start_offset), found.next_offset)]
        expect(read == wanted, f"a read of {topic} {partition} from {offset} has a gap: {sorted({*wanted} - {*read})}")
        if found.next_offset >= found.high_watermark:
            simulation.count("read to the end")
            return
        offset = found.next_offset
