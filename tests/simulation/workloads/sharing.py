"""Workers of a share group: slow ones, dying ones, many on one partition; poison records; calls that come twice.

The seed draws the group's order and bounds, what the workers do, and what operators do meanwhile: resets, and a
dead-letter topic that is deleted and made anew.
"""

from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.zones.quorum import Acks
from penstock_service.share.acknowledge import AckEntry, acknowledge
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, reset_share_group
from penstock_service.share.client_lock import parse_marked_lock_id
from penstock_service.topics.list_offsets import OffsetSpec
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.share_worker import ShareWorker, WorkerHabits
from tests.simulation.oracle.shares import ShareOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_GROUP, _TOPIC, _DEAD = "workers", "work", "work.dead"
_BACKOFF_MS_MAX = 4_000
_DRAINS_MAX = 400
_JUMP_MS = 5_000.0  # longer than each lock and each pause


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic(_TOPIC, partitions=random.choice([1, 1, 2]))
    has_dead_letters = random.random() < 0.7
    is_by_key = random.random() < 0.4
    config: dict[str, object] = {
        "lock_ms": random.choice([1_000, 3_000]),
        "retry_backoff_ms_min": random.choice([1, 300]),
        "retry_backoff_ms_max": _BACKOFF_MS_MAX,
        "ordering": "key" if is_by_key else "none",
        "in_flight_max": random.choice([3, 20, 500]),
    }
    if is_by_key:
        config["key_batch_max"] = random.choice([1, 3])
    if has_dead_letters:
        simulation.topic(_DEAD, partitions=1)
        simulation.oracle.log.topics_of_the_service.add(_DEAD)
        config |= {"dead_letter_topic": _DEAD, "deliveries_max": random.choice([1, 2, 3, 5])}
    group, _ = put_share_group(simulation.bare, _GROUP, [topic], config)
    oracle = ShareOracle(simulation, group.config, _key_of)
    habits = WorkerHabits(
        records_max=random.choice([(1,), (2, 5), (10, 20)]),
        work_ms=random.choice([(1.0,), (5.0, 300.0), (10.0, 1_500.0, 6_000.0)]),
        death_rate=random.choice([0.0, 0.05, 0.2]),
        doubled_rate=random.choice([0.0, 0.0, 0.2]),
        poison=random.choice([None, "7"]),
        bad=random.choice([None, "3"]),
    )
    for number in range(random.choice([1, 2])):
        producer = SimulatedProducer(
            simulation,
            f"sh{number}",
            topic,
            records=random.choice([10, 30]),
            acks=Acks.QUORUM,
            pace_ms=random.choice([1.0, 100.0, 500.0]),
            key_of=_key_of if is_by_key else None,
        )
        producer.start()
    for number in range(random.choice([2, 4, 8])):
        _start_worker(simulation, oracle, f"sw{number}", habits)
    if random.random() < 0.25:
        simulation.work("share operator", lambda: _reset_now_and_then(simulation))
    if has_dead_letters and random.random() < 0.25:
        simulation.work("dead-letter operator", lambda: _lose_dead_letters(simulation))
    simulation.final_checks.append(lambda: _drain(simulation, oracle))


def _key_of(value: str) -> str | None:
    """One of three keys, by the last digit of the value; some records have none."""
    digit = int(value[-1])
    return None if digit == 9 else f"k{digit % 3}"


def _start_worker(simulation: Simulation, oracle: ShareOracle, name: str, habits: WorkerHabits) -> None:
    """A worker, and others in its place when it dies."""
    random = simulation.scheduler.random

    def live() -> None:
        for life in range(random.choice([2, 4])):
            worker = ShareWorker(simulation, oracle, _GROUP, f"{name}.{life}", habits)
            worker.run(rounds=random.choice([4, 8]))

    simulation.work(name, live, delay_ms=random.uniform(0.0, 500.0))


def _reset_now_and_then(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    for _ in range(random.choice([1, 3])):
        simulation.scheduler.pause(random.uniform(50.0, 5_000.0))
        to = random.choice([ShareResetTo(end=OffsetSpec.EARLIEST), ShareResetTo(end=OffsetSpec.LATEST)])
        try:
            simulation.call(partial(reset_share_group, name=_GROUP, topic_name=_TOPIC, to=to), is_read=False)
        except PenstockError as error:
            simulation.scheduler.note("not reset", error)
        simulation.count("share group reset")


def _lose_dead_letters(simulation: Simulation) -> None:
    """Delete the dead-letter topic, and make it anew after a while."""
    admin = SimulatedAdmin(simulation, "dead-letter operator")
    simulation.scheduler.pause(simulation.scheduler.random.uniform(0.0, 3_000.0))
    admin.delete(_DEAD)
    simulation.scheduler.pause(simulation.scheduler.random.choice([100.0, 5_000.0]))
    admin.create(_DEAD, 1)


def _drain(simulation: Simulation, oracle: ShareOracle) -> None:
    """What is unfinished comes again, and can be accepted. Then each dead letter is there as often as it was moved."""
    instance = simulation.undisturbed()
    idle = 0
    for number in range(_DRAINS_MAX):
        wish = AcquireWish(nonce=LockNonce(f"drain{number:06}"), records_max=100, bytes_max=1_000_000)
        acquired = acquire(instance, _GROUP, wish)
        entries = []
        for partition in acquired.partitions:
            for lock in partition.locks:
                lock_id, generation, handed_out, mark = parse_marked_lock_id(lock.client_lock_id)
                ack = Acknowledgement(
                    lock_id=lock_id,
                    type=AckType.ACCEPT,
                    offsets=lock.ranges,
                    generation=generation,
                    handed_out=handed_out,
                )
                oracle.sends(partition.partition.key, ack)
                entries.append(
                    AckEntry(
                        topic=_TOPIC,
                        partition=partition.partition.key.partition,
                        client_lock_id=lock.client_lock_id,
                        mark=mark,
                        acknowledgement=ack,
                    )
                )
        if entries:
            acknowledge(instance, _GROUP, entries)
            idle = 0
            continue
        idle += 1
        if idle > 4:
            break
        simulation.jump(_JUMP_MS)
    oracle.check_all_finished()
    oracle.check_dead_letters(_DEAD)
    expect(idle > 0, f"{_GROUP} has not come to an end after {_DRAINS_MAX} acquires")
