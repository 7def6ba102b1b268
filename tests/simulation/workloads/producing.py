"""Producers and readers of one topic, of many kinds."""

from functools import partial
from random import Random

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import EVICTION_PRODUCERS_MIN, HEAD_PRODUCERS_KEPT
from penstock_core.log.roll import next_page
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact, partitions_of
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from tests.simulation.clients.filtered_reader import FilteredReader
from tests.simulation.clients.forger import SimulatedForger
from tests.simulation.clients.producer import ProducerChoices, SimulatedProducer, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.engine.executor import Killed
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.simulation import Simulation

_TAGGED = "tagged"
_INLINE_BYTES_MAX = (160, 300, 4_096)  # a batch of one record makes a segment of some 150 bytes
_FIRST_SLEEPER = 900  # apart from the numbers of function instances
_BUDGET_MS = 20_000.0
_LOOKS = 20  # at a head, until its tail is long enough for a roll


def traffic(simulation: Simulation) -> None:
    """Concurrent producers and readers of one topic, with lost replies, retries and every kind of acks."""
    random = simulation.scheduler.random
    topic = simulation.topic("orders", partitions=random.choice([1, 1, 2, 3]))
    names = [f"p{number}" for number in range(random.choice([1, 2, 3]))]
    choices = ProducerChoices(records=[10, 30, 50], pace_ms=[1.0, 20.0, 100.0], max_in_flight=[1, 2])
    start_producers(simulation, topic, names, choices)
    if simulation.lasts_ms:
        late = ProducerChoices(records=[5, 15], pace_ms=[1.0, 100.0])
        start_producers(simulation, topic, [f"late{number}" for number in range(4)], late, is_late=True)
    for number in range(random.choice([1, 2])):
        SimulatedReader(simulation, f"r{number}", topic, is_topic_stable=True).start()


def rolling(simulation: Simulation) -> None:
    """Several producers make many small appends to one partition: tails roll under contention."""
    random = simulation.scheduler.random
    topic = simulation.topic("hot", partitions=1)
    simulation.faults.sluggish = random.choice(
        ["put_page", "shorten_tail", "pages", "heads" if simulation.lasts_ms else simulation.faults.sluggish]
    )
    acks = simulation.acks_allowed[0]
    names = [f"h{number}" for number in range(random.choice([4, 8, 16]))]
    choices = ProducerChoices(records=[10, 20], acks=acks, pace_ms=[1.0, 10.0], max_in_flight=[1], is_batching=False)
    start_producers(simulation, topic, names, choices)
    if simulation.lasts_ms:
        late = ProducerChoices(records=[20], acks=acks, pace_ms=[10.0], is_batching=False)
        start_producers(simulation, topic, [f"late{number}" for number in range(3)], late, is_late=True)
    for number in range(2):
        SimulatedReader(simulation, f"hr{number}", topic, is_topic_stable=True).start()


def numbering(simulation: Simulation) -> None:
    """One partition has more idempotent producers than its head keeps. They leave it, and come back."""
    random = simulation.scheduler.random
    topic = simulation.topic("numbered", partitions=1)
    count = HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN + random.choice([2, 10])
    choices = ProducerChoices(
        records=[2, 4],
        acks=simulation.acks_allowed[0],
        pace_ms=[10.0, 1_000.0],
        max_in_flight=[1],
        is_batching=False,
        is_idempotent=True,
    )
    start_producers(simulation, topic, [f"n{number}" for number in range(count)], choices)
    SimulatedReader(simulation, "nr", topic, is_topic_stable=True).start()


def forging(simulation: Simulation) -> None:
    """Forgers write other bytes under the numbers of idempotent producers, who race them for each sequence."""
    random = simulation.scheduler.random
    topic = simulation.topic("coveted", partitions=1)
    is_crowded = random.random() < 0.3  # victims leave the head, and come back
    for number in range(HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN + 2 if is_crowded else random.choice([1, 3])):
        SimulatedProducer(
            simulation,
            f"v{number}",
            topic,
            records=random.choice([2, 4]) if is_crowded else random.choice([10, 20]),
            acks=simulation.acks_allowed[0],
            pace_ms=random.choice([10.0, 100.0, 300.0]),
            max_in_flight=1,
            is_batching=random.random() < 0.3,
            is_idempotent=True,
        ).start()
    SimulatedForger(simulation, "forger", topic, records=10, pace_ms=random.choice([50.0, 200.0])).start()
    SimulatedReader(simulation, "vr", topic, is_topic_stable=True).start()


def filtering(simulation: Simulation) -> None:
    """Readers with a filter by tag, on a topic whose refs carry their tags, and which small appends roll into pages.

    Each reader sees at every answer whether it got exactly what matches, whether it moved on, and whether it was armed
    only at the end. The topic is not truncated or made anew.
    """
    random = simulation.scheduler.random
    partitions = random.choice([1, 2])
    topic = simulation.topic(_TAGGED, partitions=partitions, index_tags=random.random() < 0.8)
    simulation.use_wake_ups(is_faulty=False)
    choices = ProducerChoices(
        records=[10, 30],
        pace_ms=[5.0, 50.0],
        acks=Acks.QUORUM,
        is_batching=random.random() < 0.5,
        is_tagging=True,
    )
    start_producers(simulation, topic, [f"tp{number}" for number in range(random.choice([1, 3]))], choices)
    for tag in random.sample("0123456789", random.choice([1, 3])):
        reader = FilteredReader(simulation, f"fr{tag}", topic, partitions, tag)
        reader.start()
        simulation.final_checks.append(reader.check_end)


def inline_bytes_max(seed: int) -> int:
    """The size of the largest inline segment of the run. It is no draw of the run, which other workloads share."""
    return Random(f"inline {seed}").choice(_INLINE_BYTES_MAX)


def inline(simulation: Simulation) -> None:
    """Small appends go into the log table: those of this workload, and those of all workloads that run with it.

    The bound on their size differs from run to run, so that a partition has refs of both kinds. The items may be out of
    reach for a while, as a table that DynamoDB throttles. Some appends come in requests with several partitions.
    """
    random = simulation.scheduler.random
    topic = simulation.topic("small", partitions=random.choice([1, 1, 3]))
    simulation.faults.sluggish = random.choice(["put", "get_wholes", "delete", simulation.faults.sluggish])
    choices = ProducerChoices(records=[10, 25], pace_ms=[1.0, 40.0, 300.0], max_in_flight=[1, 2])
    start_producers(simulation, topic, ["s0", "s1", "s2"], choices)
    if simulation.lasts_ms:
        start_producers(simulation, topic, ["s3", "s4", "s5"], choices, is_late=True)
    for number in range(2):
        SimulatedReader(simulation, f"sr{number}", topic, is_topic_stable=True).start()

    def trouble() -> None:
        for _ in range(random.choice([0, 1, 3])):
            simulation.scheduler.pause(random.uniform(10.0, 1_000.0 + simulation.lasts_ms / 4))
            simulation.storage.zone_trouble["inline"] = random.choice(["refuses", "hangs"])
            simulation.scheduler.pause(random.uniform(50.0, 1_500.0))
            simulation.storage.zone_trouble.pop("inline", None)

    simulation.work("inline trouble", trouble)


def crowding(simulation: Simulation) -> None:
    """Many more producers than a head keeps write to one partition, while jobs merge its pages.

    Sleepers are processes outside of Lambda, such as a replay on a laptop. They read a head, sleep for up to two
    minutes, and then roll and evict by what they have read.
    """
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
        grown = GrownHead(key=key, head=head, added_refs=max(1, len(head.tail)), added_producers=1)
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
            simulation.attempt(
                "not merged",
                partial(compact, topic_name=name, partition=partition, settings=settings, budget_ms=_BUDGET_MS),
            )
