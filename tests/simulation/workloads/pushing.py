"""Subscriptions deliver a topic to targets and to a topic, while records come, operators interfere and functions die.

Messages come twice, events come late, deliveries are killed and freeze, answers are lost. Targets are slow, throttle,
break, answer late, and cannot handle poison. G13 is broken by a record that is not delivered in the end, or in another
order, or copied twice.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from penstock_core.errors import PenstockError
from penstock_core.ids import SubscriptionName, TopicName
from penstock_core.push.batch import Answer, Failure, PushBatch
from penstock_core.push.targets.target import Target
from penstock_core.zones.quorum import Acks
from penstock_service.adapters.memory.targets import MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.pause_subscription import pause_subscription, resume_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.push.find_subscription import find_subscription
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.push_target import PushTarget, TargetHabits
from tests.simulation.engine.faults import Fault
from tests.simulation.oracle.pushes import PushOracle
from tests.simulation.service.push_service import PushService
from tests.simulation.service.simulation import Freezes, Simulation

_TOPIC = "pushed"
_OF_OTHERS = ("delayed", "moved")  # topics of the workloads timers and transactions
_LASTS_MS = 240_000.0
_OUTAGE_MS = 60_000.0
_TRIES_MAX = 100
_PATIENCE_MS = 150_000
_KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)
_KILL_RATE_MAX = 0.002  # so rare that no good record kills its deliveries by chance until it counts as poison


def install(simulation: Simulation) -> None:
    random, faults = simulation.scheduler.random, simulation.faults
    faults.set_rates(
        {kind: min(rate, _KILL_RATE_MAX) if kind in _KILLS else rate for kind, rate in faults.rates.items()}
    )
    partitions = random.choice([1, 2, 3])
    topic = simulation.topic(_TOPIC, partitions=partitions)
    topics = [topic, *(each for each in _OF_OTHERS if simulation.stores.topics.get(TopicName(each)) is not None)]
    names = [f"pu{number}" for number in range(random.choice([1, 2]))]
    choices = ProducerChoices(records=[10, 30], pace_ms=[20.0, 1_000.0, 5_000.0], acks=Acks.QUORUM, is_tagging=True)
    start_producers(simulation, topic, names, choices)
    simulation.storage.sure.add("targets")
    if random.random() < 0.3:
        simulation.freezes = Freezes(rate=0.1, duration_ms=(1_000.0, 80_000.0), stop_monotonic=random.random() < 0.5)
    subscribed = [
        _subscribe(simulation, f"s{number}", random.choice(topics)) for number in range(random.choice([1, 2]))
    ]
    delivered = sorted({each.topic for each in subscribed})
    service = PushService(simulation, delivered, doubled_rate=random.choice([0.0, 0.0, 0.1]))
    targets = {oracle.subscription.name: PushTarget(simulation, oracle, _habits(random)) for oracle in subscribed}

    def answer(_target: Target, batch: PushBatch) -> Answer:
        return targets[batch.subscription].answer(batch)

    assert isinstance(simulation.stores.targets, MemoryTargets)
    simulation.stores.targets.answer = answer
    service.start()
    simulation.work("push time", lambda: simulation.scheduler.pause(_LASTS_MS))
    for oracle in subscribed:
        if random.random() < 0.5:
            simulation.work(f"{oracle.subscription.name} operator", _Operator(simulation, oracle.subscription.name).run)
    if random.random() < 0.3:
        simulation.work("push widener", lambda: _widen(simulation, partitions))
    simulation.final_checks.append(lambda: _check(simulation, service, subscribed, targets))


def _subscribe(simulation: Simulation, name: str, topic: str) -> PushOracle:
    """Make a subscription, and send its first messages."""
    random = simulation.scheduler.random
    is_copy = random.random() < 0.3
    has_poison = not is_copy and random.random() < 0.6
    tags = random.choice([None, None, ["1", "2", "5", "7", "8"]]) if topic == _TOPIC else None
    settings = {
        "start": "earliest",
        "batch_records": random.choice([1, 3, 10]),
        "batch_window_ms": random.choice([0, 0, 2_000]),
        "concurrency": random.choice([1, 2, 10]),
        "filter": None if tags is None else {"tag": tags},
        "backoff_ms_min": random.choice([1, 300]),
        "backoff_ms_max": random.choice([5_000, 10_000]),
        "patience_ms": _PATIENCE_MS,
        "attempts_max": random.choice([4, 6]) if has_poison else None,
        "dead_letter_topic": _topic_of_the_service(simulation, f"{name}.dead") if has_poison else None,
    }
    target = {"lambda": f"arn:aws:lambda:eu-west-1:123456789012:function:{name}"}
    if is_copy:
        target = {"topic": _topic_of_the_service(simulation, f"{name}.copy")}
    wish = SubscriptionWish(topics=[topic], target=target, settings=settings)
    subscription, _ = put_subscription(simulation.bare, name, wish)
    return PushOracle(simulation=simulation, subscription=subscription, topic=topic, tags=tags, has_poison=has_poison)


def _topic_of_the_service(simulation: Simulation, name: str) -> TopicName:
    simulation.topic(name, partitions=simulation.scheduler.random.choice([1, 2]))
    del simulation.topics[name]  # the truncator leaves it alone
    simulation.oracle.log.topics_of_the_service.add(name)
    return TopicName(name)


def _habits(random: Random) -> TargetHabits:
    begins_ms = random.uniform(0.0, 60_000.0)
    outage = random.choice(list(Failure))
    return TargetHabits(
        work_ms=random.choice([(1.0, 10.0), (10.0, 2_000.0), (1_000.0, 15_000.0)]),
        failure_rate=random.choice([0.0, 0.0, 0.03]),
        outage=outage,
        outage_rate=0.9 if outage is Failure.AWAY and random.random() < 0.5 else 1.0,
        outage_ms=(begins_ms, begins_ms + random.choice([0.0, _OUTAGE_MS])),
        names_poison=random.random() < 0.5,
    )


class _Operator:
    """Pauses a subscription, resumes it, and alters its number of lanes. Each call is repeated until it succeeds."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self._simulation = simulation
        self._name = name

    def run(self) -> None:
        random = self._simulation.scheduler.random
        for _ in range(random.choice([1, 3])):
            self._simulation.scheduler.pause(random.uniform(0.0, 60_000.0))
            if random.random() < 0.6:
                self._change("pause", lambda instance: pause_subscription(instance, self._name))
                self._simulation.scheduler.pause(random.uniform(0.0, 10_000.0))
                self._change("resume", lambda instance: resume_subscription(instance, self._name))
            else:
                wish = SubscriptionWish(settings={"concurrency": random.choice([1, 2, 3, 10])})
                self._change("alter", partial(_put, self._name, wish))

    def _change(self, what: str, call: Callable[[Instance], object]) -> None:
        for _ in range(_TRIES_MAX):
            try:
                self._simulation.call(call, is_read=False)
            except PenstockError:
                self._simulation.scheduler.pause(100.0)
            else:
                self._simulation.count(f"push {what}")
                return


def _put(name: str, wish: SubscriptionWish, instance: Instance) -> object:
    return put_subscription(instance, name, wish)


def _widen(simulation: Simulation, partitions: int) -> None:
    simulation.scheduler.pause(simulation.scheduler.random.uniform(0.0, 60_000.0))
    SimulatedAdmin(simulation, "push widener").add_partitions(_TOPIC, partitions + 1)
    simulation.count("push topic widened")


def _check(
    simulation: Simulation,
    service: PushService,
    subscribed: list[PushOracle],
    targets: dict[SubscriptionName, PushTarget],
) -> None:
    subscriptions = [find_subscription(simulation.bare, each.subscription.name) for each in subscribed]
    for each in subscriptions:
        if each.is_paused:  # its operator has given up
            resume_subscription(simulation.bare, each.name)
    service.drain(subscriptions)
    for oracle in subscribed:
        is_calm = not simulation.faults.counts and not targets[oracle.subscription.name].failures
        # Two lanes may deliver the same records while the number of lanes changes (docs/adr/0042).
        has_moved = simulation.counts["push alter"] > 0
        oracle.check_end(is_exact=is_calm and simulation.freezes is None and not has_moved)
        simulation.count("push drained")
