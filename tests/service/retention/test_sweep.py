"""The sweep: what no live ref names goes from every zone, what one names stays, whatever happens meanwhile."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, SegmentId, new_segment_id
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS, TAIL_ROLL_REFS
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.storage.keys import prefix_number
from penstock_core.zones.quorum import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ListedKeys
from penstock_service.records.produce import produce
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import SweepResult, sweep
from penstock_service.retention.sweep_cursor import SweepCursor, encode_cursor
from penstock_service.topics.delete_topic import delete_topic
from penstock_service.topics.truncate import truncate
from tests.service.compaction.test_archive import archive_of
from tests.support.expiring import HOUR_MS, NEW, OLD, old_and_new, put
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    send,
    with_stores,
    zone_of,
)

BUDGET_MS = 10_000_000.0
DAY_MS = 24 * HOUR_MS


def run(instance: Instance, **options: int) -> SweepResult:
    return sweep(instance, **({"budget_ms": BUDGET_MS} | options))  # type: ignore[arg-type]


def garbage(instance: Instance, count: int = 1) -> list[SegmentId]:
    """Objects of appends that died before their update, in every zone."""
    ids = [new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(10)) for _ in range(count)]
    for zone in instance.stores.zones:
        for segment_id in ids:
            zone.put(segment_id, b"x", 0)
    return ids


def objects(instance: Instance) -> list[int]:
    return [len(zone_of(instance, index).segments) for index in range(3)]


def settle(instance: Instance, clock: SteppedClock) -> None:
    """Retention has done all it can."""
    for _ in range(3):
        retain(instance, budget_ms=BUDGET_MS)
        clock.time_ms += LOG_START_GRACE_MS


def test_garbage_goes_when_it_is_older_than_the_grace_and_what_is_named_stays(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 40, clock.now_ms())
    before = read_all(instance, topic)
    garbage(instance, 5)
    clock.time_ms += SWEEP_GRACE_MS
    assert run(instance).deleted == 0
    assert objects(instance) == [45] * 3
    clock.time_ms += 1
    assert run(instance) == SweepResult(prefixes=256, rounds=1, live=40, listed=3 * 45, deleted=3 * 5)
    assert objects(instance) == [40] * 3
    assert read_all(instance, topic) == before


def test_expired_data_goes_from_every_zone_when_its_log_start_is_safe(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    retain(instance, budget_ms=BUDGET_MS)
    clock.time_ms += LOG_START_GRACE_MS - 1
    assert run(instance, grace_ms=0).deleted == 0, "a fetch that planned its reads before may be under way"
    clock.time_ms += 1
    assert run(instance, grace_ms=0).deleted == 3 * OLD, "also of refs that are still in a page or the tail"
    assert [number for number, _ in read_all(instance, topic, offset=OLD)] == list(range(OLD, OLD + NEW))
    assert objects(instance) == [NEW] * 3
    settle(instance, clock)
    assert run(instance, grace_ms=0).deleted == 0


def test_segment_stays_while_any_of_its_partitions_needs_it(instance: Instance, clock: SteppedClock) -> None:
    short = new_topic(instance, "short", retention_ms=60_000)
    long = new_topic(instance, "long")
    for number in range(20):
        data = batch(str(number), timestamp_ms=clock.now_ms())
        produce(instance, [entry(short, 0, data), entry(long, 0, data)], Acks.QUORUM)
    clock.time_ms += HOUR_MS
    settle(instance, clock)
    assert run(instance, grace_ms=0).deleted == 0
    assert len(read_all(instance, long)) == 20
    delete_topic(instance, long)
    assert run(instance, grace_ms=0).deleted == 3 * 20


def test_empty_store_is_left_by_topics_that_are_deleted(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    retain(instance, budget_ms=BUDGET_MS)
    delete_topic(instance, topic)
    new_topic(instance, topic)
    clock.time_ms += LOG_START_GRACE_MS
    settle(instance, clock)
    run(instance, grace_ms=0)
    assert objects(instance) == [0] * 3


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
def test_object_is_left_when_it_is_no_segment_of_ours(instance: Instance, clock: SteppedClock, key: str) -> None:
    deleted: list[SegmentId] = []

    def list_keys(_original: object, prefix: str, _token: str | None) -> ListedKeys:
        return ListedKeys(keys=[key] if prefix == "00/" else [], next_token=None)

    def delete(_original: object, ids: list[SegmentId]) -> None:
        deleted.extend(ids)

    clock.time_ms += 10 * DAY_MS
    zones = [Intercepted(zone, list_keys=list_keys, delete=delete) for zone in instance.stores.zones]
    assert run(with_stores(instance, zones=zones)).listed == 3
    assert deleted == []


def aged(clock: SteppedClock) -> tuple[Instance, str]:
    """A topic one append before its tail rolls, with pages behind it, all older than the grace; and garbage."""
    instance = patient_instance(clock)
    topic = new_topic(instance)
    put(instance, topic, 3 * TAIL_ROLL_REFS - 1, clock.now_ms())
    garbage(instance, 3)
    clock.time_ms += DAY_MS + 1
    return instance, topic


def roll(instance: Instance, clock: SteppedClock) -> None:
    put(instance, "orders", 1, clock.now_ms())


def make_topic(instance: Instance, clock: SteppedClock) -> None:
    put(instance, new_topic(instance, "new"), TAIL_ROLL_REFS + 1, clock.now_ms())


def recreate(instance: Instance, clock: SteppedClock) -> None:
    delete_topic(instance, "orders")
    put(instance, new_topic(instance), TAIL_ROLL_REFS + 1, clock.now_ms())


def sweep_too(instance: Instance, _clock: SteppedClock) -> None:
    run(instance)


def let_expire(instance: Instance, clock: SteppedClock) -> None:
    truncate(instance, "orders", {0: 2 * TAIL_ROLL_REFS + 5})
    settle(instance, clock)
    settle(instance, clock)


@pytest.mark.slow
@pytest.mark.parametrize("act", [roll, make_topic, recreate, sweep_too, let_expire])
def test_nothing_live_is_lost_when_another_process_works_between_any_two_calls(
    act: Callable[[Instance, SteppedClock], None],
) -> None:
    """The ref that moves from the tail to a page between two reads is the classic one: `roll`. All of the reads of the
    index come first; of the 768 list calls behind them the first are tried."""
    for place in range(16):
        clock = SteppedClock()
        instance, _ = aged(clock)
        acted: list[bool] = []

        def meanwhile(instance: Instance = instance, clock: SteppedClock = clock, acted: list[bool] = acted) -> None:
            act(another_instance(instance), clock)
            acted.append(True)

        run(interrupted_before(instance, place, meanwhile))
        assert acted
        for topic in instance.stores.topics.list():
            key = key_of(instance, topic.name)
            head = instance.stores.log.heads([key])[key]
            records = read_all(instance, topic.name, offset=head.log_start_offset)
            assert len(records) == head.next_offset - head.log_start_offset


def test_segment_of_an_append_in_flight_is_spared(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)

    def swept_meanwhile(original: Callable[..., Head], key: PartitionKey, ref: Ref, zones: int) -> Head:
        clock.time_ms += 29_000
        run(another_instance(instance))
        return original(key, ref, zones)

    slow = another_instance(instance, log=Intercepted(instance.stores.log, append=swept_meanwhile))
    send(slow, topic, "x")
    assert read_all(instance, topic) == [(0, "x")]


def test_nothing_is_deleted_when_a_page_is_missing(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 50, clock.now_ms())
    clock.time_ms += DAY_MS + 1
    key = key_of(instance, topic)
    instance.stores.log.delete_page(key, instance.stores.log.pages(key, Offset(0), 9)[1].end_offset)
    with pytest.raises(PenstockError) as caught:
        run(instance)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert objects(instance) == [50] * 3


def test_nothing_is_deleted_when_a_head_is_missing_under_a_name_that_stands(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 5, clock.now_ms())
    clock.time_ms += DAY_MS + 1
    instance.stores.log.delete_head(key_of(instance, topic))
    with pytest.raises(PenstockError) as caught:
        run(instance)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert objects(instance) == [5] * 3


def test_objects_of_the_very_first_topic_go_though_it_was_deleted_before_any_run(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 5, clock.now_ms())
    delete_topic(instance, topic)
    clock.time_ms += DAY_MS + 1
    assert run(instance) == SweepResult(prefixes=256, rounds=1, listed=3 * 5, deleted=3 * 5)


def wrong_table(instance: Instance) -> Instance:
    """The same zones under an index that knows nothing of them, as after a restore that went wrong."""
    return with_stores(memory_instance(clock=instance.clock), zones=instance.stores.zones)


@pytest.mark.parametrize("recreated", [[], ["orders"], ["orders", "others"]])
def test_sweep_under_a_wrong_or_empty_table_deletes_nothing_and_counts_it(
    instance: Instance, clock: SteppedClock, recreated: list[str]
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 20, clock.now_ms())
    clock.time_ms += 3 * DAY_MS
    wrong = wrong_table(instance)
    for name in recreated:
        new_topic(wrong, name)
    for _ in range(2):
        assert run(wrong) == SweepResult(prefixes=256, rounds=1, listed=3 * 20, foreign=3 * 20)
        clock.time_ms += 3 * DAY_MS
    assert len(read_all(instance, topic)) == 20
    garbage(wrong, 2)
    clock.time_ms += DAY_MS + 1
    assert run(wrong).deleted == (3 * 2 if recreated else 0), "its own garbage goes all the same"
    assert len(read_all(instance, topic)) == 20


def test_objects_of_the_first_topic_go_although_it_is_deleted(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 20, clock.now_ms())
    clock.time_ms += DAY_MS
    run(instance)
    delete_topic(instance, topic)
    settle(instance, clock)
    clock.time_ms += DAY_MS
    assert run(instance) == SweepResult(prefixes=256, rounds=1, listed=3 * 20, deleted=3 * 20)


def test_segment_that_a_clock_behind_has_named_is_the_topics_own(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    clock.time_ms -= 900
    garbage(instance)
    clock.time_ms += DAY_MS + 1_000
    assert run(instance).deleted == 3


def test_many_segments_are_swept_by_marks_that_do_not_stay_in_memory(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 300, clock.now_ms())
    dead = garbage(instance, 50)
    clock.time_ms += DAY_MS + 1
    more = [new_topic(instance, name) for name in ("more", "most")]
    for each in more:
        put(instance, each, 60, clock.now_ms() - DAY_MS - 1)
    counts: Counter[str] = Counter()
    done = sweep(counted_instance(instance, counts), budget_ms=BUDGET_MS, live_max=40)
    assert (done.prefixes, done.rounds, done.deleted) == (256, 1, 3 * 50)
    assert counts["archive.put"] == 1, "the marks of the first topic, and the others are younger than the cutoff"
    assert len(read_all(instance, topic)) == 300
    assert not archive_of(instance).segments, "marks go with their sweep"
    assert not set(dead) & set(zone_of(instance, 0).segments)


def test_sweep_out_of_time_goes_on_where_it_stopped(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    garbage(instance, 200)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = with_stores(instance, zones=[Intercepted(zone, list_keys=slow) for zone in instance.stores.zones])
    seen = [run(patient, budget_ms=300) for _ in range(3)]
    assert [part.is_finished for part in seen] == [False, False, True]
    assert sum(part.prefixes for part in seen) == 256
    assert objects(instance) == [0] * 3
    assert instance.stores.cursors.get("sweep") is None


def test_index_is_read_in_several_runs_and_nothing_live_goes_whatever_happens_between(
    instance: Instance, clock: SteppedClock
) -> None:
    topics = [new_topic(instance, f"t{number}", partitions=2) for number in range(4)]
    for name in topics:
        for _ in range(TAIL_ROLL_REFS - 2):
            send(instance, name, "x", partition=1)
    dead = garbage(instance, 40)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., object], *arguments: object) -> object:
        clock.time_ms += 10
        return original(*arguments)

    patient = with_stores(instance, log=Intercepted(instance.stores.log, heads=slow))
    runs = [run(patient, budget_ms=15)]
    assert (runs[0].is_finished, runs[0].prefixes, runs[0].deleted) == (False, 0, 0)
    assert archive_of(instance).segments, "marks of the first run"
    for name in topics:  # refs of the tail move to a page, and a new topic comes in between
        send(instance, name, *("y" for _ in range(3)), partition=1)
        for _ in range(3):
            send(instance, name, "z", partition=1)
    send(instance, new_topic(instance, "t1-new"), "young")
    while not runs[-1].is_finished:
        runs.append(sweep(another_instance(patient), budget_ms=15))
        assert len(runs) < 50
    assert len(runs) == 3, "two runs read the index, and the third one sweeps"
    assert sum(each.live for each in runs) == 4 * (TAIL_ROLL_REFS - 2)
    assert sum(each.deleted for each in runs) == 3 * len(dead)
    for name in topics:
        assert len(read_all(instance, name, 1)) == TAIL_ROLL_REFS - 2 + 6
    assert len(read_all(instance, "t1-new")) == 1
    assert not archive_of(instance).segments
    assert instance.stores.cursors.get("sweep") is None


def test_sweep_begins_anew_when_its_marks_are_gone_and_refuses_damaged_ones(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 20, clock.now_ms())
    dead = garbage(instance, 5)
    clock.time_ms += DAY_MS + 1

    def slow(original: Callable[..., ListedKeys], prefix: str, token: str | None) -> ListedKeys:
        clock.time_ms += 1
        return original(prefix, token)

    patient = with_stores(instance, zones=[Intercepted(zone, list_keys=slow) for zone in instance.stores.zones])
    assert not run(patient, budget_ms=100).is_finished
    marks = archive_of(instance).segments
    [(marks_id, body)] = marks.items()
    marks[marks_id] = body[:-1] + bytes([body[-1] ^ 1])
    with pytest.raises(PenstockError, match="are damaged"):
        run(patient)
    marks.clear()
    assert not run(patient).is_finished
    assert instance.stores.cursors.get("sweep") is None
    done = run(patient)
    assert done.is_finished
    assert len(read_all(instance, topic)) == 20
    assert not set(dead) & set(zone_of(instance, 0).segments)


def test_sweep_that_took_too_long_begins_anew(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 5, clock.now_ms())
    clock.time_ms += 9 * DAY_MS
    instance.stores.cursors.put("sweep", encode_cursor(SweepCursor(cutoff_ms=0, since_ms=0, at=None)))
    assert run(instance).rounds == 1
    assert len(read_all(instance, topic)) == 5


def test_sweep_says_so_when_the_time_does_not_suffice_for_the_index(instance: Instance) -> None:
    new_topic(instance)
    garbage(instance)
    with pytest.raises(PenstockError, match="nothing was swept"):
        run(instance, budget_ms=0, grace_ms=-1)
    assert objects(instance) == [1] * 3


def test_zone_that_is_down_is_swept_the_next_time(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    garbage(instance, 4)
    clock.time_ms += DAY_MS + 1
    zone_of(instance, 1).is_down = True
    done = run(instance)
    assert (done.failures, done.deleted) == (256, 8)
    zone_of(instance, 1).is_down = False
    assert run(instance).deleted == 4
    assert objects(instance) == [0] * 3


@pytest.mark.slow
@pytest.mark.parametrize("is_applied", [False, True])
def test_sweep_that_dies_anywhere_loses_nothing_and_the_next_one_finishes(is_applied: bool) -> None:
    deaths = 0
    for place in [*range(14), 400, 778]:
        clock = SteppedClock()
        instance, topic = aged(clock)
        before = read_all(instance, topic)
        with catch_kill() as was_killed:
            run(killed_at(instance, place, is_applied=is_applied))
        deaths += bool(was_killed)
        assert read_all(instance, topic) == before
        for _ in range(2):
            run(instance)
        assert objects(instance) == [len(before)] * 3
    assert deaths == 16


def test_prefixes_of_segments_are_spread_by_chance(instance: Instance) -> None:
    counts = [prefix_number(segment_id) for segment_id in garbage(instance, 2_000)]
    assert len(set(counts)) > 200


def test_sweep_reads_heads_before_pages(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    put(instance, topic, 40, clock.now_ms())
    seen: list[str] = []

    def note(name: str) -> Callable[..., object]:
        def hook(original: Callable[..., object], *arguments: object) -> object:
            seen.append(name)
            return original(*arguments)

        return hook

    run(another_instance(instance, log=Intercepted(instance.stores.log, heads=note("heads"), pages=note("pages"))))
    assert seen == ["heads", "pages"]
