"""Subscriptions deliver a topic to targets and to a topic, while records come, operators interfere and functions die.

Messages come twice or are lost, events come late, deliveries are killed and freeze, answers are lost. Targets are slow,
throttle, break, answer late, and cannot handle poison. G13 is broken by a record that is not delivered in the end, or
in another order, or copied twice, or dead-lettered without need.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

from penstock_core.ids import TopicName
from penstock_core.limits import PUSH_ORPHANS_MS
from penstock_core.push.batch import Answer, PushBatch
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import Target
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.push.admin.pause_subscription import resume_subscription
from penstock_service.push.look import look
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producer import ProducerChoices, start_producers
from tests.simulation.clients.push_target import PushTarget
from tests.simulation.engine.faults import Fault
from tests.simulation.oracle.push_watch import PushWatch
from tests.simulation.oracle.pushes import PushOracle, dead_letters_of
from tests.simulation.oracle.violation import expect
from tests.simulation.service.push_service import PushService
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.pushing.operators import PushOperator
from tests.simulation.workloads.pushing.subscribed import (
    Kind,
    SubscribedName,
    draw_habits,
    draw_settings,
    draw_troubles,
)

_TOPIC = "pushed"
_OF_OTHERS = ("delayed", "moved")  # topics of the workloads timers and transactions
_LASTS_MS = (120_000.0, 240_000.0, 700_000.0)
_LASTS_MS_AMONG_OTHERS = 30_000.0  # whose loops go on as long
_PACES_MS = {
    Kind.MIXED: [20.0, 1_000.0, 5_000.0, 12_000.0],
    Kind.OUTAGE: [2_000.0, 5_000.0],
    Kind.OVERTAKING: [20.0, 1_000.0, 2_000.0],
}
_KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)
_KILL_RATES = (0.0, 0.002, 0.005, 0.01)  # where the seed has none: most runs must have some


def install(simulation: Simulation, expires_in_ms: Sequence[int | None] = ()) -> None:
    random, is_alone = simulation.scheduler.random, not simulation.clients
    lasts_ms = random.choice(_LASTS_MS) if is_alone else _LASTS_MS_AMONG_OTHERS
    kind = random.choice([*Kind]) if is_alone else Kind.MIXED
    if kind is not Kind.OUTAGE:
        _raise_kill_rates(simulation)
    partitions = random.choice([2, 3] if kind is Kind.OUTAGE else [1, 2, 3])
    topic = simulation.topic(_TOPIC, partitions=partitions)
    topics = [topic, *(each for each in _OF_OTHERS if simulation.stores.topics.get(TopicName(each)) is not None)]
    names = [f"pu{number}" for number in range(random.choice([1, 2]))]
    paces_ms = _PACES_MS[kind] if is_alone else [20.0, 1_000.0]
    choices = ProducerChoices(
        records=[10, 30], pace_ms=paces_ms, acks=Acks.QUORUM, is_tagging=True, expires_in_ms=expires_in_ms
    )
    start_producers(simulation, topic, names, choices)
    simulation.storage.sure.add("targets")
    subscribed = {
        f"s{number}": _subscribed(simulation, kind, f"s{number}", topics, lasts_ms)
        for number in range(random.choice([1, 2]))
    }
    watch = PushWatch(simulation, lambda each: subscribed[each.name].created(each))
    for each in subscribed.values():
        each.put(simulation.bare)
        watch.created(_stored(simulation, each.name))
    service = PushService(simulation, sorted({each.topic for each in subscribed.values()}), draw_troubles(random, kind))

    def answer(_target: Target, batch: PushBatch) -> Answer:
        return subscribed[batch.subscription].answer(watch.oracles[batch.subscription_id], service, batch)

    assert isinstance(simulation.stores.targets, MemoryTargets)
    simulation.stores.targets.answer = answer
    service.start()
    simulation.work("push time", lambda: simulation.scheduler.pause(lasts_ms))
    for each in subscribed.values():
        _start_operators(simulation, each, lasts_ms)
    if random.random() < 0.4:
        simulation.work("push widener", lambda: _widen(simulation, partitions))
    simulation.final_checks.append(lambda: _check(simulation, service, [*subscribed.values()]))


def _raise_kill_rates(simulation: Simulation) -> None:
    random, rates = simulation.scheduler.random, dict(simulation.faults.rates)
    for kind in _KILLS:
        rates[kind] = rates[kind] or random.choice(_KILL_RATES)
    simulation.faults.set_rates(rates)


def _subscribed(simulation: Simulation, kind: Kind, name: str, topics: list[str], lasts_ms: float) -> SubscribedName:
    """A subscription that is about to be made."""
    random: Random = simulation.scheduler.random
    topic, is_copy = random.choice(topics), kind is not Kind.OUTAGE and random.random() < 0.25
    has_dead_topic = not is_copy and (kind is Kind.OUTAGE or random.random() < 0.7)
    dead_topic = _topic_of_the_service(simulation, f"{name}.dead") if has_dead_topic else None
    target = {"lambda": f"arn:aws:lambda:eu-west-1:123456789012:function:{name}"}
    if is_copy:
        target = {"topic": _topic_of_the_service(simulation, f"{name}.copy")}
    found = SubscribedName(
        simulation=simulation,
        kind=kind,
        name=name,
        topic=topic,
        tags=random.choice([None, None, ["1", "2", "5", "7", "8"]]) if topic == _TOPIC else None,
        target=PushTarget(simulation, draw_habits(random, kind, lasts_ms, has_dead_topic=dead_topic is not None)),
        target_document=target,
        dead_topic=dead_topic,
        is_in_history=random.random() < 0.7 and not simulation.oracle.expiries.is_on,
    )
    found.begin(draw_settings(random, kind, dead_topic, is_copy=is_copy))
    return found


def _topic_of_the_service(simulation: Simulation, name: str) -> TopicName:
    simulation.topic(name, partitions=simulation.scheduler.random.choice([1, 2]))
    del simulation.topics[name]  # the truncator leaves it alone
    simulation.oracle.log.topics_of_the_service.add(name)
    return TopicName(name)


def _stored(simulation: Simulation, name: str) -> Subscription:
    [found] = (each for each in simulation.stores.push.list_subscriptions("", 100) if each.name == name)
    return found


def _start_operators(simulation: Simulation, subscribed: SubscribedName, lasts_ms: float) -> None:
    operator = PushOperator(subscribed)
    if subscribed.kind is Kind.OVERTAKING or simulation.scheduler.random.random() < 0.5:
        simulation.work(f"{subscribed.name} operator", lambda: operator.run(lasts_ms))
    if not subscribed.is_in_history:
        simulation.work(f"{subscribed.name} deleter", lambda: operator.recreate(lasts_ms))


def _widen(simulation: Simulation, partitions: int) -> None:
    simulation.scheduler.pause(simulation.scheduler.random.uniform(0.0, 30_000.0))
    SimulatedAdmin(simulation, "push widener").add_partitions(_TOPIC, partitions + 1)
    simulation.count("push topic widened")


def _check(simulation: Simulation, service: PushService, subscribed: list[SubscribedName]) -> None:
    for each in simulation.stores.push.list_subscriptions("", 100):
        if each.is_paused:  # its operator has given up
            resume_subscription(simulation.bare, each.name)
    service.drain()
    for name in subscribed:
        for oracle in name.oracles:
            if oracle.deleted_ms is None:
                is_calm = not simulation.faults.counts and not name.target.failures
                has_moved = oracle.attempts.has_moved  # two lanes may deliver the same records then (docs/adr/0042)
                is_frozen = simulation.counts["freeze"] > 0
                is_exact = is_calm and not is_frozen and not has_moved
                oracle.check_end(is_exact=is_exact, is_lossless=not service.needs_look)
        _check_dead_letters(simulation, name)
    _check_deleted(simulation, [oracle for name in subscribed for oracle in name.oracles if oracle.deleted_ms])
    simulation.count("push drained")


def _check_dead_letters(simulation: Simulation, subscribed: SubscribedName) -> None:
    """Check that the dead-letter topic has what the oracles saw it get, and nothing else."""
    log, found = simulation.oracle.log, Counter[tuple[int, int]]()
    for key, appends in log.appends.items():
        if subscribed.dead_topic is not None and log.names.get(key.topic_id) == subscribed.dead_topic:
            letters = (each for entry in appends for each in dead_letters_of(simulation, entry))
            found.update((each.origin[1], each.origin_offset) for each in letters)
    wanted = Counter(
        (int(key.partition), offset) for oracle in subscribed.oracles for key, offset in oracle.records.buried
    )
    told = f"dead letters of {subscribed.name} are {found}, moved were {wanted}"
    is_deleted = any(oracle.deleted_ms is not None for oracle in subscribed.oracles)  # its moves are not seen then
    expect(found == wanted or (is_deleted and wanted <= found), told)


def _check_deleted(simulation: Simulation, oracles: list[PushOracle]) -> None:
    """Check that looks remove what deleted subscriptions have left."""
    if not oracles:
        return
    simulation.jump(2.0 * PUSH_ORPHANS_MS)
    for _ in range(2):  # the first may go on where another one stopped
        run = look(simulation.undisturbed(), budget_ms=1_000_000)
        expect(run.is_finished and not run.failures, f"a look does not do its work: {run}")
    for oracle in oracles:
        name = oracle.subscription.subscription_id
        states = simulation.stores.push.states_of(name)
        expect(not states.lanes and not states.deliveries, f"{name} was deleted, and has left {states}")
    left = simulation.stores.push.orphaned_states("", 100)
    expect(not left, f"notes of deleted subscriptions are left: {left}")
