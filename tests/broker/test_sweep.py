"""The sweep: what no live ref names goes from every zone, what one names stays, whatever happens meanwhile."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_broker.adapters.memory import memory_broker
from penstock_broker.broker import Broker
from penstock_broker.delete_topic import delete_topic
from penstock_broker.ports import ListedKeys
from penstock_broker.produce import produce
from penstock_broker.retain import retain
from penstock_broker.sweep import Swept, sweep
from penstock_broker.truncate import truncate
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, SegmentId, new_segment_id
from penstock_core.index import Head
from penstock_core.keys import PartitionKey, prefix_number
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.ref import Ref
from tests.broker.expiring import HOUR_MS, NEW, OLD, old_and_new, put
from tests.broker.interleaving import dying, that_dies, that_meets
from tests.broker.setting import (
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    entry,
    key_of,
    new_topic,
    patient_broker,
    read_all,
    send,
    zone_of,
)

BUDGET_MS = 10_000_000.0
DAY_MS = 24 * HOUR_MS


def run(broker: Broker, **options: int) -> Swept:
    return sweep(broker, **({"budget_ms": BUDGET_MS} | options))  # type: ignore[arg-type]


def garbage(broker: Broker, count: int = 1) -> list[SegmentId]:
    """Objects of appends that died before their update, in every zone."""
    ids = [new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(10)) for _ in range(count)]
    for zone in broker.zones:
        for segment_id in ids:
            zone.put(segment_id, b"x", 0)
    return ids


def objects(broker: Broker) -> list[int]:
    return [len(zone_of(broker, index).segments) for index in range(3)]


def settle(broker: Broker, clock: SteppedClock) -> None:
    """Retention has done all it can."""
    for _ in range(3):
        retain(broker, budget_ms=BUDGET_MS)
        clock.time_ms += LOG_START_GRACE_MS


def test_garbage_goes_when_it_is_older_than_the_grace_and_what_is_named_stays(
    broker: Broker, clock: SteppedClock
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 40, clock.now_ms())
    before = read_all(broker, topic)
    garbage(broker, 5)
    clock.time_ms += SWEEP_GRACE_MS
    assert run(broker).deleted == 0
    assert objects(broker) == [45] * 3
    clock.time_ms += 1
    assert run(broker) == Swept(prefixes=256, rounds=1, live=40, listed=3 * 45, deleted=3 * 5)
    assert objects(broker) == [40] * 3
    assert read_all(broker, topic) == before


def test_expired_data_goes_from_every_zone_once_its_log_start_has_settled(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)
    retain(broker, budget_ms=BUDGET_MS)
    clock.time_ms += LOG_START_GRACE_MS - 1
    assert run(broker, grace_ms=0).deleted == 0, "a fetch that planned its reads before may be under way"
    clock.time_ms += 1
    assert run(broker, grace_ms=0).deleted == 3 * OLD, "also of refs that are still in a page or the tail"
    assert [number for number, _ in read_all(broker, topic, offset=OLD)] == list(range(OLD, OLD + NEW))
    assert objects(broker) == [NEW] * 3
    settle(broker, clock)
    assert run(broker, grace_ms=0).deleted == 0


def test_segment_stays_while_any_of_its_partitions_needs_it(broker: Broker, clock: SteppedClock) -> None:
    short = new_topic(broker, "short", retention_ms=60_000)
    long = new_topic(broker, "long")
    for number in range(20):
        data = batch(str(number), timestamp_ms=clock.now_ms())
        produce(broker, [entry(short, 0, data), entry(long, 0, data)], Acks.QUORUM)
    clock.time_ms += HOUR_MS
    settle(broker, clock)
    assert run(broker, grace_ms=0).deleted == 0
    assert len(read_all(broker, long)) == 20
    delete_topic(broker, long)
    assert run(broker, grace_ms=0).deleted == 3 * 20


def test_empty_store_is_left_by_topics_that_are_deleted(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)
    retain(broker, budget_ms=BUDGET_MS)
    delete_topic(broker, topic)
    new_topic(broker, topic)
    clock.time_ms += LOG_START_GRACE_MS
    settle(broker, clock)
    run(broker, grace_ms=0)
    assert objects(broker) == [0] * 3


@pytest.mark.parametrize(
    "key",
    [
        "probe/00000f42400000000000000000000000",
        "00/1970-01-01-00/readme.txt",
        "00/1970-01-01-01/00000000000000000000000000000000",
        "00/1970-01-01-00/000000000000000000000000000000000",
        "00/",
    ],
)
def test_what_is_no_segment_of_ours_is_left(broker: Broker, clock: SteppedClock, key: str) -> None:
    deleted: list[SegmentId] = []

    def list_keys(_original: object, prefix: str, _token: str | None) -> ListedKeys:
        return ListedKeys(keys=[key] if prefix == "00/" else [], next_token=None)

    def delete(_original: object, ids: list[SegmentId]) -> None:
        deleted.extend(ids)

    clock.time_ms += 10 * DAY_MS
    zones = [Intercepted(zone, list_keys=list_keys, delete=delete) for zone in broker.zones]
    assert run(replace(broker, zones=zones)).listed == 3  # type: ignore[arg-type]
    assert deleted == []


def aged(clock: SteppedClock) -> tuple[Broker, str]:
    """A topic one append before its tail rolls, with pages behind it, all older than the grace; and garbage."""
    broker = patient_broker(clock)
    topic = new_topic(broker)
    put(broker, topic, 3 * TAIL_ROLL_REFS - 1, clock.now_ms())
    garbage(broker, 3)
    clock.time_ms += DAY_MS + 1
    return broker, topic


def roll(broker: Broker, clock: SteppedClock) -> None:
    put(broker, "orders", 1, clock.now_ms())


def make_topic(broker: Broker, clock: SteppedClock) -> None:
    put(broker, new_topic(broker, "new"), TAIL_ROLL_REFS + 1, clock.now_ms())


def recreate(broker: Broker, clock: SteppedClock) -> None:
    delete_topic(broker, "orders")
    put(broker, new_topic(broker), TAIL_ROLL_REFS + 1, clock.now_ms())


def sweep_too(broker: Broker, _clock: SteppedClock) -> None:
    run(broker)


def let_expire(broker: Broker, clock: SteppedClock) -> None:
    truncate(broker, "orders", {0: 2 * TAIL_ROLL_REFS + 5})
    settle(broker, clock)
    settle(broker, clock)


@pytest.mark.parametrize("act", [roll, make_topic, recreate, sweep_too, let_expire])
def test_nothing_live_is_lost_when_others_are_at_work_between_any_two_calls(
    act: Callable[[Broker, SteppedClock], None],
) -> None:
    """The ref that moves from the tail to a page between two reads is the classic one: `roll`. All of the reads of the
    index come first; of the 768 list calls behind them the first are tried."""
    for place in range(16):
        clock = SteppedClock()
        broker, _ = aged(clock)
        acted: list[bool] = []

        def meanwhile(broker: Broker = broker, clock: SteppedClock = clock, acted: list[bool] = acted) -> None:
            act(another_instance(broker), clock)
            acted.append(True)

        run(that_meets(broker, place, meanwhile))
        assert acted
        for topic in broker.topics.list():
            key = key_of(broker, topic.name)
            head = broker.log.heads([key])[key]
            records = read_all(broker, topic.name, offset=head.log_start_offset)
            assert len(records) == head.next_offset - head.log_start_offset


def test_segment_of_an_append_in_flight_is_spared(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)

    def swept_meanwhile(original: Callable[..., Head], key: PartitionKey, ref: Ref, zones: int) -> Head:
        clock.time_ms += 29_000
        run(another_instance(broker))
        return original(key, ref, zones)

    slow = another_instance(broker, log=Intercepted(broker.log, append=swept_meanwhile))
    send(slow, topic, "x")
    assert read_all(broker, topic) == [(0, "x")]


def test_nothing_is_deleted_when_a_page_is_missing(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    put(broker, topic, 50, clock.now_ms())
    clock.time_ms += DAY_MS + 1
    key = key_of(broker, topic)
    broker.log.delete_page(key, broker.log.pages(key, Offset(0), 9)[1].end_offset)
    with pytest.raises(PenstockError) as caught:
        run(broker)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert objects(broker) == [50] * 3


def test_nothing_is_deleted_when_a_head_is_missing_under_a_name_that_stands(
    broker: Broker, clock: SteppedClock
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 5, clock.now_ms())
    clock.time_ms += DAY_MS + 1
    broker.log.delete_head(key_of(broker, topic))
    with pytest.raises(PenstockError) as caught:
        run(broker)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert objects(broker) == [5] * 3


def test_objects_of_the_very_first_topic_go_though_it_was_deleted_before_any_run(
    broker: Broker, clock: SteppedClock
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 5, clock.now_ms())
    delete_topic(broker, topic)
    clock.time_ms += DAY_MS + 1
    assert run(broker) == Swept(prefixes=256, rounds=1, listed=3 * 5, deleted=3 * 5)


def wrong_table(broker: Broker) -> Broker:
    """The same zones under an index that knows nothing of them, as after a restore that went wrong."""
    return replace(memory_broker(clock=broker.clock), zones=broker.zones)


@pytest.mark.parametrize("recreated", [[], ["orders"], ["orders", "others"]])
def test_sweep_under_a_wrong_or_empty_table_deletes_nothing_and_counts_it(
    broker: Broker, clock: SteppedClock, recreated: list[str]
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 20, clock.now_ms())
    clock.time_ms += 3 * DAY_MS
    wrong = wrong_table(broker)
    for name in recreated:
        new_topic(wrong, name)
    for _ in range(2):
        assert run(wrong) == Swept(prefixes=256, rounds=1, listed=3 * 20, foreign=3 * 20)
        clock.time_ms += 3 * DAY_MS
    assert len(read_all(broker, topic)) == 20
    garbage(wrong, 2)
    clock.time_ms += DAY_MS + 1
    assert run(wrong).deleted == (3 * 2 if recreated else 0), "its own garbage goes all the same"
    assert len(read_all(broker, topic)) == 20


def test_objects_of_the_first_topic_go_although_it_is_deleted(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    put(broker, topic, 20, clock.now_ms())
    clock.time_ms += DAY_MS
    run(broker)
    delete_topic(broker, topic)
    settle(broker, clock)
    clock.time_ms += DAY_MS
    assert run(broker) == Swept(prefixes=256, rounds=1, listed=3 * 20, deleted=3 * 20)


def test_segment_that_a_clock_behind_has_named_is_the_topics_own(broker: Broker, clock: SteppedClock) -> None:
    new_topic(broker)
    clock.time_ms -= 900
    garbage(broker)
    clock.time_ms += DAY_MS + 1_000
    assert run(broker).deleted == 3


def test_many_segments_are_swept_in_rounds_that_fit_into_memory(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    put(broker, topic, 300, clock.now_ms())
    dead = garbage(broker, 50)
    clock.time_ms += DAY_MS + 1
    done = run(broker, live_max=40)
    assert done.rounds >= 300 // 40
    assert (done.prefixes, done.live, done.deleted) == (256, 300, 3 * 50)
    assert len(read_all(broker, topic)) == 300
    assert not set(dead) & set(zone_of(broker, 0).segments)


def test_sweep_out_of_time_goes_on_where_it_stopped(broker: Broker, clock: SteppedClock) -> None:
    new_topic(broker)
    garbage(broker, 200)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = replace(broker, zones=[Intercepted(zone, list_keys=slow) for zone in broker.zones])  # type: ignore[misc]
    seen = [run(patient, budget_ms=300) for _ in range(3)]
    assert [part.is_finished for part in seen] == [False, False, True]
    assert sum(part.prefixes for part in seen) == 256
    assert objects(broker) == [0] * 3
    assert broker.cursors.get("sweep") is None


def test_sweep_says_so_when_the_time_does_not_suffice_for_the_index(broker: Broker) -> None:
    new_topic(broker)
    garbage(broker)
    with pytest.raises(PenstockError, match="nothing was swept"):
        run(broker, budget_ms=0, grace_ms=-1)
    assert objects(broker) == [1] * 3


def test_zone_that_is_down_is_swept_the_next_time(broker: Broker, clock: SteppedClock) -> None:
    new_topic(broker)
    garbage(broker, 4)
    clock.time_ms += DAY_MS + 1
    zone_of(broker, 1).is_down = True
    done = run(broker)
    assert (done.failures, done.deleted) == (256, 8)
    zone_of(broker, 1).is_down = False
    assert run(broker).deleted == 4
    assert objects(broker) == [0] * 3


@pytest.mark.parametrize("is_applied", [False, True])
def test_sweep_that_dies_anywhere_loses_nothing_and_the_next_one_finishes(is_applied: bool) -> None:
    deaths = 0
    for place in [*range(14), 400, 778]:
        clock = SteppedClock()
        broker, topic = aged(clock)
        before = read_all(broker, topic)
        with dying() as was_killed:
            run(that_dies(broker, place, is_applied=is_applied))
        deaths += bool(was_killed)
        assert read_all(broker, topic) == before
        for _ in range(2):
            run(broker)
        assert objects(broker) == [len(before)] * 3
    assert deaths == 16


def test_prefixes_of_segments_are_spread_by_chance(broker: Broker) -> None:
    counts = [prefix_number(segment_id) for segment_id in garbage(broker, 2_000)]
    assert len(set(counts)) > 200


def test_sweep_reads_heads_before_pages(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    put(broker, topic, 40, clock.now_ms())
    seen: list[str] = []

    def note(name: str) -> Callable[..., object]:
        def hook(original: Callable[..., object], *arguments: object) -> object:
            seen.append(name)
            return original(*arguments)

        return hook

    run(another_instance(broker, log=Intercepted(broker.log, heads=note("heads"), pages=note("pages"))))
    assert seen == ["heads", "pages"]
