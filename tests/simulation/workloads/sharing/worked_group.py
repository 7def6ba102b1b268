"""One share group of a run: what it draws, its topic, its oracle, its workers, and what must hold at the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockNonce
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_service.share.acknowledge import AckEntry, acknowledge
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import delete_share_group
from penstock_service.share.share_partitions import parse_marked_lock_id
from tests.history import format as history
from tests.simulation.clients.share_history import ShareRecord
from tests.simulation.clients.share_worker import ShareWorker, WorkerHabits
from tests.simulation.oracle.shares import KeyOf, ShareOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

BACKOFF_MS_MAX = 4_000
_DRAINS_MAX = 400
_IDLE_DRAINS = 5  # acquires without a record, after which nothing comes again
_JUMP_MS = BACKOFF_MS_MAX + 1_000.0  # longer than each lock and each pause


def by_last_digit(value: str) -> str | None:
    """One of three keys, by the last digit of the value; some records have none."""
    digit = int(value[-1])
    return None if digit == 9 else f"k{digit % 3}"


def draw_config(random: Random, dead_topic: str, *, is_filtered: bool = False) -> dict[str, object]:
    """The settings of a share group, sometimes with this dead-letter topic."""
    is_by_key = random.random() < 0.4
    config: dict[str, object] = {
        "lock_ms": random.choice([1_000, 3_000]),
        "retry_backoff_ms_min": random.choice([1, 300]),
        "retry_backoff_ms_max": BACKOFF_MS_MAX,
        "ordering": "key" if is_by_key else "none",
        "in_flight_max": random.choice([3, 20, 500]),
    }
    if is_by_key:
        config["key_batch_max"] = random.choice([1, 3])
    if is_filtered:
        config["filter"] = draw_policy(random)
    if random.random() < 0.7:
        config |= {"dead_letter_topic": dead_topic, "deliveries_max": random.choice([1, 2, 3, 5])}
    return config


def draw_policy(random: Random) -> dict[str, object]:
    """A filter policy over the tag, which is the last digit of the value."""
    return {"tag": random.sample("0123456789", random.choice([2, 6]))}


def draw_habits(random: Random) -> WorkerHabits:
    """Workers that may be slow, die, and be killed by poison records."""
    return WorkerHabits(
        records_max=random.choice([(1,), (2, 5), (10, 20)]),
        work_ms=random.choice([(1.0,), (5.0, 300.0), (10.0, 1_500.0, 6_000.0)]),
        death_rate=random.choice([0.0, 0.05, 0.2]),
        doubled_rate=random.choice([0.0, 0.0, 0.2, 0.5]),
        poison=random.choice([None, "7"]),
        bad=random.choice([None, "3"]),
    )


def repeating_habits(random: Random) -> WorkerHabits:
    """Quick workers on a network that brings most calls twice."""
    return WorkerHabits(
        records_max=random.choice([(1,), (2,)]),
        work_ms=(1.0,),
        death_rate=0.0,
        doubled_rate=0.6,
        poison=None,
        bad=None,
        acknowledges_at_once=1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedGroup:
    """A share group of one topic. `dead_topic` is its dead-letter topic, which nobody else writes to."""

    simulation: Simulation
    name: str
    topic: str
    dead_topic: str | None
    config: Mapping[str, object]
    oracle: ShareOracle

    @classmethod
    def put(
        cls,
        simulation: Simulation,
        name: str,
        topic: str,
        config: Mapping[str, object],
        key_of: KeyOf = by_last_digit,
    ) -> "WorkedGroup":
        """Make the group, and the dead-letter topic that its settings name."""
        dead_topic = config.get("dead_letter_topic")
        assert dead_topic is None or isinstance(dead_topic, str)
        if dead_topic is not None:
            simulation.topic(dead_topic, partitions=1)
            simulation.oracle.log.topics_of_the_service.add(dead_topic)
        group, _ = put_share_group(simulation.bare, name, [topic], config)
        return cls(
            simulation=simulation,
            name=name,
            topic=topic,
            dead_topic=dead_topic,
            config=config,
            oracle=ShareOracle(simulation, group, key_of),
        )

    def start_workers(self, names: Sequence[str], habits: WorkerHabits, rounds: Sequence[int] = (4, 8)) -> None:
        """Start workers, and others in the place of those that die."""
        random = self.simulation.scheduler.random

        def live(name: str) -> None:
            for life in range(random.choice([2, 4])):
                worker = ShareWorker(self.simulation, self.oracle, self.name, f"{name}.{life}", habits)
                worker.run(rounds=random.choice(rounds))

        for name in names:
            self.simulation.work(name, _with(live, name), delay_ms=random.uniform(0.0, 500.0))

    def drain(self) -> None:
        """What is unfinished comes again, and can be accepted. Each dead letter is there as often as it was moved."""
        instance, recorder = self.simulation.undisturbed(), self.simulation.recorder
        drain = recorder.invoke("drain", history.Function.DRAINED, group=self.name)
        record = ShareRecord(recorder, self.name, self.oracle.config.lock_ms)
        idle = 0
        for number in range(_DRAINS_MAX):
            wish = AcquireWish(nonce=LockNonce(f"drain{number:06}"), records_max=100, bytes_max=1_000_000)
            operation = record.asks("drain", (), wish.nonce)
            acquired = acquire(instance, self.name, wish)
            record.is_told(operation, (), acquired)
            entries = self._acceptances(acquired)
            if entries:
                operation = record.asks("drain", entries)
                record.is_told(operation, acknowledge(instance, self.name, entries))
                idle = 0
                continue
            idle += 1
            if idle == _IDLE_DRAINS:
                break
            self.simulation.jump(_JUMP_MS)
        expect(idle == _IDLE_DRAINS, f"{self.name} has not come to an end after {_DRAINS_MAX} acquires")
        self._tell_expired()
        recorder.ok(drain, [history.Drained(self.topic)])
        self.oracle.check_all_finished(self.topic)
        if self.dead_topic is not None:
            self.oracle.check_dead_letters(self.dead_topic)

    def _tell_expired(self) -> None:
        """Tell the history of what retention has removed."""
        oracle = self.simulation.oracle
        for key, log_start in oracle.log_starts.items():
            if oracle.log.names.get(key.topic_id) == self.topic:
                expired = history.Truncate((self.topic, int(key.partition)), int(log_start))
                self.simulation.recorder.done("retention", history.Function.TRUNCATE, [expired])

    def check_deletion(self) -> None:
        """Delete the group: an instance that still remembers it gets nothing, and leaves no state of it."""
        instance = self.simulation.undisturbed()
        keys = [*self.oracle.partitions]
        instance.share_group_cache.get(self.name)
        delete_share_group(self.simulation.bare, self.name)
        wish = AcquireWish(nonce=LockNonce("afterwards"), records_max=100, bytes_max=1_000_000)
        try:
            found = acquire(instance, self.name, wish).partitions
        except PenstockError as error:
            expect(
                error.code is ErrorCode.UNKNOWN_SHARE_GROUP, f"{self.name} was deleted, and its acquire says {error}"
            )
            found = ()
        expect(not found, f"{self.name} was deleted, and hands out {found}")
        left = self.simulation.stores.share.find_states(keys)
        expect(not left, f"{self.name} was deleted, and leaves {left}")

    def _acceptances(self, acquired: Acquired) -> list[AckEntry]:
        entries = []
        for partition in acquired.partitions:
            for lock in partition.locks:
                lock_id, generation, handed_out, mark = parse_marked_lock_id(lock.client_lock_id)
                acknowledgement = Acknowledgement(
                    lock_id=lock_id,
                    type=AckType.ACCEPT,
                    offsets=lock.ranges,
                    generation=generation,
                    handed_out=handed_out,
                )
                key = partition.partition.key
                self.oracle.sends(key, acknowledgement)
                entry = AckEntry(
                    topic=self.topic,
                    partition=key.partition,
                    client_lock_id=lock.client_lock_id,
                    mark=mark,
                    acknowledgement=acknowledgement,
                )
                entries.append(entry)
        return entries


def _with(live: Callable[[str], None], name: str) -> Callable[[], None]:
    return lambda: live(name)
