"""Workers of share groups: slow ones, dying ones, poison records, transactions, and calls that come twice."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from penstock_core.errors import Category, PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.zones.zone_state import Acks
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, delete_share_group, reset_share_group
from penstock_service.topics.list_offsets import OffsetSpec
from tests.history import format as history
from tests.simulation.clients.accepting_worker import AcceptingWorker
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.share_history import ShareRecord
from tests.simulation.clients.share_worker import ShareWorker
from tests.simulation.engine.faults import Fault
from tests.simulation.oracle.share_outputs import ShareOutputs
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.worked_group import (
    WorkedGroup,
    by_last_digit,
    draw_config,
    draw_habits,
    draw_policy,
    repeating_habits,
)

_GROUP, _TOPIC, _DEAD = "workers", "work", "work.dead"
_PARTITIONS_MAX = 4
_OPERATIONS_SHARE = 0.25  # of the runs have a certain kind of operator
_REPEATING_SHARE = 0.15  # of the runs have a network and a driver that repeat much, and quick workers
_THROTTLED_SHARE = 0.15  # have a table that refuses much, and workers that acknowledge several partitions in a request
_REPEATERS, _REPEATED = "repeaters", "repeated"
_REPEATED_RATE = 0.3
_ACCEPTERS, _ACCEPTED, _OUTPUTS, _ACCEPTED_DEAD = "accepters", "accepted", "accepted.outputs", "accepted.dead"


def install_fairly(simulation: Simulation) -> None:
    """As `install`, and a group without order has fair sharing."""
    install(simulation, {"sharing": "fair"})


def install(simulation: Simulation, without_order: Mapping[str, object] = MappingProxyType({})) -> None:
    random = simulation.scheduler.random
    partitions = random.choice([1, 2, 3])
    is_filtered = random.random() < 0.3
    has_tags = {"index_tags": True} if is_filtered and random.random() < 0.5 else {}
    topic = simulation.topic(_TOPIC, partitions=partitions, **has_tags)
    config = draw_config(random, _DEAD, is_filtered=is_filtered)
    is_by_key = config["ordering"] == "key"
    config |= {} if is_by_key else without_order
    group = WorkedGroup.put(simulation, _GROUP, topic, config)
    group.oracle.is_in_history = not is_filtered  # the history knows filters by the ends of values only
    if group.oracle.is_in_history:
        ShareRecord(simulation.recorder, _GROUP, group.oracle.config.lock_ms).made(topic, group.oracle.config)
    for number in range(random.choice([1, 2])):
        producer = SimulatedProducer(
            simulation,
            f"sh{number}",
            topic,
            records=random.choice([10, 30]),
            acks=Acks.QUORUM,
            pace_ms=random.choice([1.0, 100.0, 500.0]),
            is_tagging=is_filtered,
            key_of=by_last_digit if is_by_key else None,
        )
        producer.start()
    chance = random.random()
    if chance < _REPEATING_SHARE:
        simulation.faults.set_rates({**simulation.faults.rates, Fault.REPEATED: 0.15})
        habits = repeating_habits(random)
    else:
        habits = draw_habits(random)
    if chance > 1.0 - _THROTTLED_SHARE:
        simulation.faults.set_rates({**simulation.faults.rates, Fault.REFUSED: 0.08})
        habits = replace(habits, records_max=(2, 5), acknowledges_at_once=1.0, acquires=3)
    group.start_workers([f"sw{number}" for number in range(random.choice([2, 4, 8]))], habits)
    _start_operators(simulation, group, partitions, is_filtered=is_filtered)
    simulation.final_checks.append(group.drain)
    simulation.final_checks.append(group.check_deletion)


def _start_operators(simulation: Simulation, group: WorkedGroup, partitions: int, *, is_filtered: bool) -> None:
    operations: dict[str, Callable[[], None]] = {
        "share operator": partial(_reset_now_and_then, simulation),
        "share deleter": partial(_make_anew, simulation, group),
        "widener": partial(_widen, simulation, partitions),
        "share truncator": partial(_truncate, simulation),
    }
    if group.dead_topic is not None:
        operations["dead-letter operator"] = partial(_lose_dead_letters, simulation)
    if is_filtered:
        operations["filter operator"] = partial(_change_filter, simulation)
    for name, operate in operations.items():
        if simulation.scheduler.random.random() < _OPERATIONS_SHARE:
            simulation.work(name, operate)


def _reset_now_and_then(simulation: Simulation) -> None:
    """Reset to an end of the log, or to somewhere near the last records."""
    random = simulation.scheduler.random
    for _ in range(random.choice([1, 3])):
        simulation.scheduler.pause(random.uniform(50.0, 5_000.0))
        ends = list(simulation.oracle.log.ends.values())
        to = random.choice(
            [
                ShareResetTo(end=OffsetSpec.EARLIEST),
                ShareResetTo(end=OffsetSpec.LATEST),
                ShareResetTo(offset=max(0, min(ends, default=0) - random.choice([1, 4]))),
            ]
        )
        _operate(simulation, partial(reset_share_group, name=_GROUP, topic_name=_TOPIC, to=to))
        simulation.count("share group reset")


def _make_anew(simulation: Simulation, group: WorkedGroup) -> None:
    """Delete the group, and make one of its name until there is one."""
    random = simulation.scheduler.random
    for _ in range(random.choice([1, 2])):
        simulation.scheduler.pause(random.uniform(50.0, 5_000.0))
        while _operate(simulation, partial(delete_share_group, name=group.name)) not in (None, Category.NOT_FOUND):
            simulation.scheduler.pause(50.0)
        simulation.count("share group deleted")
        simulation.scheduler.pause(random.choice([0.0, 500.0]))
        put = partial(put_share_group, name=group.name, topics=[group.topic], config=group.config)
        while _operate(simulation, put) is not None:
            simulation.scheduler.pause(50.0)


def _operate(simulation: Simulation, run: Callable[..., object]) -> Category | None:
    """Do it once. Returns the category of the error, None if it is done. For the history, each of them is a reset."""
    ops = [history.Reset((_TOPIC, partition), None) for partition in range(_PARTITIONS_MAX)]
    # Without an end: functions remember a group that was deleted or altered for a while.
    recorder = simulation.recorder
    recorder.maybe(recorder.invoke("share operator", history.Function.RESET, ops, group=_GROUP))
    try:
        simulation.call(run, is_read=False)
    except PenstockError as error:
        simulation.scheduler.note("not operated", error)
        return error.code.category
    return None


def _change_filter(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.scheduler.pause(random.uniform(50.0, 5_000.0))
    config = {"filter": draw_policy(random)}
    _operate(simulation, partial(put_share_group, name=_GROUP, topics=None, config=config))


def _widen(simulation: Simulation, partitions: int) -> None:
    simulation.scheduler.pause(simulation.scheduler.random.uniform(50.0, 3_000.0))
    SimulatedAdmin(simulation, "share widener").add_partitions(_TOPIC, partitions + 1)
    simulation.count("share topic widened")


def _truncate(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    for _ in range(random.choice([1, 3])):
        simulation.scheduler.pause(random.uniform(50.0, 3_000.0))
        SimulatedAdmin(simulation, "share truncator").truncate(_TOPIC, random.choice([0.3, 0.7, 1.0]))


def _lose_dead_letters(simulation: Simulation) -> None:
    """Delete the dead-letter topic, and make it anew after a while."""
    admin = SimulatedAdmin(simulation, "dead-letter operator")
    simulation.scheduler.pause(simulation.scheduler.random.uniform(0.0, 3_000.0))
    admin.delete(_DEAD)
    simulation.scheduler.pause(simulation.scheduler.random.choice([100.0, 5_000.0]))
    admin.create(_DEAD, 1)


def repeating(simulation: Simulation) -> None:
    """Quick workers of a share group, on a network that brings most calls twice and a driver that repeats many updates.

    A copy of an acquire may lock later records under the id of a lock that is gone, and meet a late copy of its accept.
    """
    random = simulation.scheduler.random
    simulation.faults.set_rates({**simulation.faults.rates, Fault.REPEATED: _REPEATED_RATE})
    topic = simulation.topic(_REPEATED, partitions=1)
    group = WorkedGroup.put(simulation, _REPEATERS, topic, {"lock_ms": 4_000, "retry_backoff_ms_max": 4_000})
    producer = SimulatedProducer(simulation, "re", topic, records=100, acks=Acks.QUORUM, pace_ms=100.0)
    producer.start()
    group.start_workers([f"re{number}" for number in range(random.choice([2, 4]))], repeating_habits(random), (8, 16))
    simulation.final_checks.append(group.drain)


def accepting(simulation: Simulation) -> None:
    """Workers of a share group accept in transactions: outputs, offsets and acceptances in one commit.

    Two acceptors may have one transactional id. Plain workers accept without transactions, and take over ended locks.
    """
    random = simulation.scheduler.random
    topic = simulation.topic(_ACCEPTED, partitions=random.choice([1, 2]))
    simulation.topic(_OUTPUTS, partitions=1)
    simulation.oracle.log.topics_of_the_service.add(_OUTPUTS)
    config = draw_config(random, _ACCEPTED_DEAD)
    group = WorkedGroup.put(simulation, _ACCEPTERS, topic, config)
    outputs = ShareOutputs(simulation, group.oracle)
    producer = SimulatedProducer(
        simulation,
        "ac",
        topic,
        records=random.choice([10, 30]),
        acks=Acks.QUORUM,
        pace_ms=random.choice([1.0, 100.0, 500.0]),
        key_of=by_last_digit if config["ordering"] == "key" else None,
    )
    producer.start()
    habits = draw_habits(random)
    group.start_workers([f"aw{number}" for number in range(random.choice([1, 3]))], habits)
    has_zombies = random.random() < 0.4

    def live(number: int) -> None:
        name = TransactionalId(f"acceptor{0 if has_zombies else number}")
        for life in range(random.choice([1, 3])):
            worker = ShareWorker(simulation, group.oracle, _ACCEPTERS, f"at{number}.{life}", habits)
            AcceptingWorker(simulation, worker, outputs, name, _OUTPUTS).run(rounds=random.choice([4, 8]))

    for number in range(random.choice([1, 2, 3])):
        simulation.work(f"at{number}", partial(live, number))
    simulation.final_checks.append(group.drain)
    simulation.final_checks.append(outputs.check_end)
