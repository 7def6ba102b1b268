"""Operators change topics meanwhile: they truncate them, make them anew, and close partitions."""

from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.index import Head
from penstock_service.index.heads import is_unsettled
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.topics.describe_topic import describe_topic
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producer import ProducerChoices, start_producers
from tests.simulation.clients.reader import Observer, SimulatedReader
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_FLEETING = "fleeting"
_ELASTIC = "elastic"


def truncation(simulation: Simulation) -> None:
    """An operator raises log starts while clients write and read."""
    random = simulation.scheduler.random
    admin = SimulatedAdmin(simulation, "truncator")

    def run() -> None:
        for _ in range(random.choice([2, 5])):
            simulation.scheduler.pause(random.uniform(10.0, 800.0 + simulation.lasts_ms / 5))
            for topic in list(simulation.topics):
                admin.truncate(topic, random.choice([0.0, 0.3, 0.7, 1.0]))

    simulation.work("truncator", run)


def recreation(simulation: Simulation) -> None:
    """A topic is written, read, deleted and made anew with other numbers of partitions, by one or two operators."""
    random = simulation.scheduler.random
    simulation.topic(_FLEETING, partitions=2)
    simulation.claims.topic_changes[_FLEETING] = []
    start_producers(simulation, _FLEETING, ["f0", "f1"], ProducerChoices(records=[20, 40], pace_ms=[20.0, 100.0]))
    SimulatedReader(simulation, "fr", _FLEETING, is_topic_stable=False).start()
    admin = SimulatedAdmin(simulation, "creator")

    def recreate() -> None:
        for _ in range(random.choice([1, 3])):
            simulation.scheduler.pause(random.uniform(50.0, 1_000.0 + simulation.lasts_ms / 5))
            admin.delete(_FLEETING)
            simulation.scheduler.pause(random.choice([0.0, 100.0]))
            admin.create(_FLEETING, random.choice([1, 2, 3]))

    def widen() -> None:
        for _ in range(random.choice([0, 2, 4])):
            simulation.scheduler.pause(random.uniform(50.0, 800.0))
            SimulatedAdmin(simulation, "widener").add_partitions(_FLEETING, random.choice([2, 3, 4]))

    simulation.work("creator", recreate)
    simulation.work("widener", widen)


def draining(simulation: Simulation) -> None:
    """One or two operators change how many partitions of a topic are writable, while producers write and readers read.

    Appends are in flight when heads close. Answers are lost, alterations die and come late, and requests come again
    long after. The oracle sees that no append takes effect at a closed head, and that no head follows an older layout.
    """
    random = simulation.scheduler.random
    simulation.topic(_ELASTIC, partitions=3)
    layouts: dict[PartitionKey, int] = {}

    def observe(label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if label != "log" or isinstance(outcome, PenstockError):
            return
        if method in ("append", "append_in_sequence") and outcome.is_appended:
            expect(not outcome.head.is_closed, f"{arguments[0]} took an append, and is closed")
        if method == "move_to_layout" and isinstance(outcome, Head):
            simulation.count("head closed" if outcome.is_closed else "head opened")
            key = arguments[0]
            expect(outcome.layout >= layouts.get(key, 0), f"{key} has gone back to layout {outcome.layout}")
            layouts[key] = outcome.layout

    def resize() -> None:
        for _ in range(random.choice([2, 4, 8])):
            simulation.scheduler.pause(random.uniform(20.0, 800.0))
            SimulatedAdmin(simulation, "sizer").add_partitions(_ELASTIC, random.choice([1, 2, 3, 4]))

    simulation.storage.observers.append(observe)
    start_producers(simulation, _ELASTIC, ["e0", "e1", "e2"], ProducerChoices(records=[20, 40], pace_ms=[20.0, 100.0]))
    SimulatedReader(simulation, "er", _ELASTIC, is_topic_stable=True).start()
    Observer(simulation, "eo", _ELASTIC).start()
    for number in range(random.choice([1, 2])):
        simulation.work(f"sizer{number}", resize)
    simulation.final_checks.append(lambda: _check_heads(simulation))


def _check_heads(simulation: Simulation) -> None:
    """The same number once more settles every head, whatever died before."""
    instance = simulation.bare
    topic, _ = describe_topic(instance.topic_cache, instance.stores.log, _ELASTIC)
    topic = alter_topic(instance, _ELASTIC, topic.writable_partitions, {})
    keys = [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]
    for key, head in instance.stores.log.heads(keys).items():
        is_right = head.is_closed == (key.partition >= topic.writable_partitions) or not topic.layout
        expect(is_right and not is_unsettled(topic, key.partition, head), f"{key} of {topic} has {head}")
