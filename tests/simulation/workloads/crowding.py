"""Many more producers than a head keeps write to one partition, while jobs merge its pages.

Sleepers are processes outside of Lambda, such as a replay on a laptop. They read a head, sleep for up to two minutes,
and then roll and evict by what they have read.
"""

from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import EVICTION_PRODUCERS_MIN, HEAD_PRODUCERS_KEPT
from penstock_core.log.roll import next_page
from penstock_service.compaction.compact import compact, partitions_of
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.engine.executor import Killed
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.simulation import Simulation

_FIRST_SLEEPER = 900  # apart from the numbers of function instances
_BUDGET_MS = 20_000.0
_LOOKS = 20  # at a head, until its tail is long enough for a roll


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("crowd", partitions=1)
    count = HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN + random.choice([8, 30])
    choices = ProducerChoices(
        records=[2, 4],
        acks=simulation.acks_allowed[0],
        pace_ms=[10.0, 300.0, 1_000.0],
        max_in_flight=[1],
        is_batching=False,
        is_idempotent=True,
    )
    start_producers(simulation, topic, [f"c{number}" for number in range(count)], choices)
    SimulatedReader(simulation, "cr", topic, is_topic_stable=True).start()
    for number in range(random.choice([1, 3])):
        simulation.work(f"sleeper{number}", partial(_sleep_over, simulation, _FIRST_SLEEPER + 10 * number))
    if random.random() < 0.7:
        simulation.work("merger", partial(_merge, simulation))


def _sleep_over(simulation: Simulation, number: int) -> None:
    random = simulation.scheduler.random
    sleeper = SimulatedInstance(simulation.state, simulation.storage, number)
    for _ in range(random.choice([4, 12])):
        simulation.scheduler.pause(random.uniform(1.0, 400.0))
        [*topics] = simulation.stores.topics.list()
        drawn = random.choice(topics) if topics and random.random() < 0.3 else topics[0] if topics else None
        keys = [PartitionKey(each.topic_id, p) for each in topics for p in each.all_partitions() if each is drawn]
        if not keys:
            continue
        try:
            _shorten_late(simulation, sleeper, random.choice(keys))
        except PenstockError as error:
            simulation.scheduler.note("sleeper failed", error)
        except Killed:
            number += 1
            sleeper = SimulatedInstance(simulation.state, simulation.storage, number)


def _shorten_late(simulation: Simulation, sleeper: SimulatedInstance, key: PartitionKey) -> None:
    random = simulation.scheduler.random
    for _ in range(_LOOKS):
        window = UpdateWindow.open(sleeper.clock)
        head = sleeper.instance.stores.log.heads([key]).get(key)
        if head is None or next_page(head) is not None:
            break
    simulation.scheduler.pause(random.choice([5.0, 100.0, 1_000.0, 20_000.0]) * random.uniform(0.5, 1.0))
    if random.random() < 0.1:
        simulation.scheduler.pause(random.uniform(30_000.0, 120_000.0))
    if head is not None:
        grown = GrownHead(key=key, head=head, added_refs=max(1, len(head.tail)), added_producer=True)
        shorten_heads(sleeper.instance, window, [grown])


def _merge(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    settings = CompactionSettings(
        age_ms_min=0,
        refs_min=2,
        ref_bytes=random.choice([200, 1_000, 10_000]),
        segment_bytes=random.choice([1_500, 5_000]),
        lease_ms=random.choice([50, 2_000]),
    )
    for _ in range(random.choice([5, 15])):
        simulation.scheduler.pause(random.uniform(10.0, 400.0))
        for name, partition in partitions_of(simulation.bare, ()):
            try:
                simulation.call(
                    partial(compact, topic_name=name, partition=partition, settings=settings, budget_ms=_BUDGET_MS),
                    is_read=False,
                )
            except PenstockError as error:
                simulation.scheduler.note("not merged", error)
