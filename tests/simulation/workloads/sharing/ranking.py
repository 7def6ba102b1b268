"""Workers of a share group whose topics have priorities, while records of all topics come, fail and come again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import LockId, LockNonce
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.share.acknowledge import AckEntry, acknowledge
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.share_partitions import parse_marked_lock_id
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.oracle.share_ranks import RankOracle
from tests.simulation.oracle.share_tenants import TenantOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_GROUP = "ranked"
_TOPICS = ("ranked.c", "ranked.b", "ranked.a")  # their order is not that of their names
_LOCK_MS, _BACKOFF_MS_MAX = 2_000, 1_000
_TRIES_MAX = 3
_DRAINS_MAX, _IDLE_DRAINS = 200, 5
_JUMP_MS = _LOCK_MS + _BACKOFF_MS_MAX + 1_000.0
_BYTES_MAX = 1_000_000
NO_LOCK = LockId("")  # until the lock is known


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topics = _TOPICS[: random.choice([2, 3])]
    for topic in topics:
        simulation.topic(topic, partitions=random.choice([1, 2, 3]))
    config = {
        "topic_order": "listed",
        "lock_ms": _LOCK_MS,
        "retry_backoff_ms_min": 1,
        "retry_backoff_ms_max": _BACKOFF_MS_MAX,
        "ordering": random.choice(["none", "none", "key"]),
    }
    group, _ = put_share_group(simulation.bare, _GROUP, topics, config)
    oracle = RankOracle(simulation, group)
    for topic in topics:
        producer = SimulatedProducer(
            simulation,
            f"producer of {topic}",
            topic,
            records=random.choice([5, 20, 40]),
            acks=Acks.QUORUM,
            pace_ms=random.choice([1.0, 100.0, 500.0]),
        )
        producer.start()
    for number in range(random.choice([2, 4, 8])):
        work = partial(_RankedWorker(simulation, oracle).run, rounds=random.choice([6, 12]))
        simulation.work(f"rw{number}", work, delay_ms=random.uniform(0.0, 300.0))
    simulation.final_checks.append(partial(drain, simulation, _GROUP, oracle))


class _RankedWorker:
    """Acquires, and accepts or releases what it gets. It forgets some locks, as one that dies does."""

    def __init__(self, simulation: Simulation, oracle: RankOracle) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._oracle = oracle
        self._records_max: Sequence[int] = self._random.choice([(1,), (2, 5), (20,)])
        self._pending: list[AckEntry] = []

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            acquired = self._acquire()
            if acquired is None or not acquired.partitions:
                self._simulation.scheduler.pause(self._random.choice([5.0, 100.0, 500.0]))
                continue
            self._simulation.scheduler.pause(self._random.choice([1.0, 50.0, 3_000.0]))
            self._pending = decided(acquired, self._decide)
            if self._random.random() < 0.2 and self._pending:
                entries, self._pending = self._pending, []
                self._simulation.attempt(
                    "not acknowledged", partial(acknowledge, group_name=_GROUP, entries=entries), is_judged=False
                )

    def _decide(self) -> Acknowledgement | None:
        chance = self._random.random()
        if chance < 0.15:
            return None
        kind = AckType.RELEASE if chance < 0.4 else AckType.ACCEPT
        return Acknowledgement(lock_id=NO_LOCK, type=kind, delay_ms=0 if kind is AckType.RELEASE else None)

    def _acquire(self) -> Acquired | None:
        """One acquire, tried again with its nonce."""
        entries, self._pending = tuple(self._pending), []
        wish = AcquireWish(
            nonce=LockNonce(f"{self._random.randrange(16**8):08x}"),
            records_max=self._random.choice(self._records_max),
            bytes_max=self._random.choice([300, _BYTES_MAX]),
            acknowledgements=entries,
        )
        assert wish.nonce is not None
        self._oracle.asks(wish.nonce)
        for tries in range(_TRIES_MAX):
            run = partial(acquire, group_name=_GROUP, wish=replace(wish, is_repeat=tries > 0))
            try:
                return self._simulation.call(run, is_read=False, is_judged=False)
            except PenstockError as error:
                self._simulation.scheduler.note("not acquired", error)
                self._simulation.scheduler.pause(self._random.choice([10.0, 500.0]))
        return None


def decided(acquired: Acquired, decide: Callable[[], Acknowledgement | None]) -> list[AckEntry]:
    """The acknowledgements of the locks, as their client sends them; None for a lock that it forgets."""
    entries = []
    for lock in (lock for partition in acquired.partitions for lock in partition.locks):
        wanted = decide()
        if wanted is None:
            continue
        lock_id, generation, handed_out, mark = parse_marked_lock_id(lock.client_lock_id)
        entry = AckEntry(
            topic=lock.partition.topic,
            partition=lock.partition.key.partition,
            client_lock_id=lock.client_lock_id,
            mark=mark,
            acknowledgement=replace(
                wanted, lock_id=lock_id, offsets=lock.ranges, generation=generation, handed_out=handed_out
            ),
        )
        entries.append(entry)
    return entries


def drain(simulation: Simulation, group: str, oracle: RankOracle | TenantOracle) -> None:
    """What is unfinished comes again, whatever its topic, and can be accepted."""
    instance, idle = simulation.undisturbed(), 0
    accept = Acknowledgement(lock_id=NO_LOCK, type=AckType.ACCEPT)
    for number in range(_DRAINS_MAX):
        wish = AcquireWish(nonce=LockNonce(f"drain{number:06}"), records_max=100, bytes_max=_BYTES_MAX)
        entries = decided(acquire(instance, group, wish), lambda: accept)
        if entries:
            acknowledge(instance, group, entries)
            idle = 0
            continue
        idle += 1
        if idle == _IDLE_DRAINS:
            break
        simulation.jump(_JUMP_MS)
    for key in oracle.keys:
        state = simulation.stores.share.find_states([key]).get(key)
        position, unfinished = (0, ()) if state is None else (state.position, state.unfinished())
        expect(
            position >= oracle.end_of(key) and not unfinished,
            f"{key} is at {position} of {oracle.end_of(key)}, and {unfinished} are unfinished at the end",
        )
