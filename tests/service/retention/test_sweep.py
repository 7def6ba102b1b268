"""The sweep: what no live ref names goes from every zone, and what one names stays."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, SegmentId
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS
from penstock_core.storage.keys import KeyLayout, folder_number, parse_folder
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import MemorySegmentStore, memory_instance
from penstock_service.adapters.timer_triggers import ByHourSegmentStore
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ListedKeys
from penstock_service.records.produce import produce
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import SweepResult
from penstock_service.topics.alter_topic import delete_topic
from tests.service.retention.sweeping import BUDGET_MS, DAY_MS, folders, garbage, objects, run, settle, with_hours
from tests.support.expiring import HOUR_MS, NEW, OLD, old_and_new, put
from tests.support.service import (
    Intercepted,
    SteppedClock,
    batch,
    counted_instance,
    entry,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    with_stores,
    zone_of,
)


@pytest.fixture(params=KeyLayout)
def instance(request: pytest.FixtureRequest, clock: SteppedClock) -> Instance:
    """An instance whose zones are ordinary buckets, and one whose zones are directory buckets."""
    plain = patient_instance(clock)
    return with_hours(plain) if request.param is KeyLayout.BY_HOUR else plain


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
    count = folders(instance)
    assert run(instance) == SweepResult(folders=count, rounds=1, live=40, listed=3 * 45, deleted=3 * 5)
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
        "1970-01-01-00/readme.txt",
        "1970-01-01-01/00000000000000000000000000000000",
        "1970-01-01-00/00/00000000000000000000000000000000",
    ],
)
def test_object_is_left_when_it_is_no_segment_of_ours(instance: Instance, clock: SteppedClock, key: str) -> None:
    deleted: list[SegmentId] = []

    def list_folders(_original: object) -> list[str]:
        return [key[: key.index("/") + 1]]

    def list_keys(_original: object, prefix: str, _token: str | None) -> ListedKeys:
        return ListedKeys(keys=[key] if key.startswith(prefix) else [], next_token=None)

    def delete(_original: object, ids: list[SegmentId]) -> None:
        deleted.extend(ids)

    clock.time_ms += 10 * DAY_MS
    zones = [
        Intercepted(zone, list_folders=list_folders, list_keys=list_keys, delete=delete)
        for zone in instance.stores.zones
    ]
    found = run(with_stores(instance, zones=zones))
    parsed = parse_folder(key[: key.index("/") + 1])
    is_of_this_layout = parsed is not None and parsed[0] is instance.stores.zones[0].layout
    assert (found.listed, found.failures) == (3 * is_of_this_layout, 0)
    assert deleted == []


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
    count = folders(instance)
    assert run(instance) == SweepResult(folders=count, rounds=1, listed=3 * 5, deleted=3 * 5)


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
        count = folders(wrong)
        assert run(wrong) == SweepResult(folders=count, rounds=1, listed=3 * 20, foreign=3 * 20)
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
    count = folders(instance)
    assert run(instance) == SweepResult(folders=count, rounds=1, listed=3 * 20, deleted=3 * 20)


def test_segment_that_a_clock_behind_has_named_is_the_topics_own(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    clock.time_ms -= 900
    garbage(instance)
    clock.time_ms += DAY_MS + 1_000
    assert run(instance).deleted == 3


def test_zone_that_is_down_is_swept_the_next_time(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    garbage(instance, 4)
    clock.time_ms += DAY_MS + 1
    zone_of(instance, 1).is_down = True
    done = run(instance)
    assert (done.failures, done.deleted) == (1, 8)
    zone_of(instance, 1).is_down = False
    assert run(instance).deleted == 4
    assert objects(instance) == [0] * 3


def test_folders_of_an_ordinary_bucket_are_spread_by_chance(instance: Instance) -> None:
    counts = [folder_number(segment_id, KeyLayout.SPREAD) for segment_id in garbage(instance, 2_000)]
    assert len(set(counts)) > 200


def test_sweep_lists_the_hours_that_have_objects_and_none_that_is_too_young(clock: SteppedClock) -> None:
    instance = with_hours(patient_instance(clock))
    topic = new_topic(instance)
    for _ in range(5):
        garbage(instance, 20)
        put(instance, topic, 2, clock.now_ms())
        clock.time_ms += 6 * HOUR_MS
    counts: Counter[str] = Counter()
    clock.time_ms += DAY_MS - 20 * HOUR_MS  # the oldest two are older than the grace
    done = run(counted_instance(instance, counts), grace_ms=DAY_MS)
    assert (done.folders, done.deleted) == (2, 3 * 40)
    assert (counts["zone.list_folders"], counts["zone.list_keys"], counts["archive.list_keys"]) == (3, 6, 0)
    assert len(read_all(instance, topic)) == 10


def by_both_keys(instance: Instance) -> Instance:
    """The instance with zones that read by the keys of an earlier release too."""
    return with_stores(
        instance,
        zones=[
            ByHourSegmentStore(MemorySegmentStore(zone.zone, KeyLayout.BY_HOUR), zone) for zone in instance.stores.zones
        ],
    )


def test_segments_with_old_keys_are_read_and_go_when_nothing_names_them(clock: SteppedClock) -> None:
    earlier = patient_instance(clock)
    topic = new_topic(earlier, retention_ms=HOUR_MS)
    put(earlier, topic, 20, clock.now_ms())
    garbage(earlier, 4)
    instance = by_both_keys(earlier)
    put(instance, topic, 20, clock.now_ms())
    assert objects(earlier) == [24] * 3, "new segments have new keys"
    assert len(read_all(instance, topic)) == 40
    clock.time_ms += DAY_MS + 1
    done = run(instance, grace_ms=DAY_MS)
    assert (done.deleted, done.old_keys, done.listed) == (3 * 4, 3 * 24, 3 * 44)
    assert len(read_all(instance, topic)) == 40
    settle(instance, clock)
    settle(instance, clock)
    assert run(instance, grace_ms=DAY_MS).deleted == 3 * 40
    assert objects(earlier) == [0] * 3
    counts: Counter[str] = Counter()
    run(counted_instance(instance, counts))
    assert counts["zone.list_keys"] == 0, "no folder is left to list"


def test_read_of_a_segment_with_a_new_key_asks_once(clock: SteppedClock) -> None:
    instance = by_both_keys(patient_instance(clock))
    topic = new_topic(instance)
    put(instance, topic, 1, clock.now_ms())
    asked: list[str] = []
    for zone in instance.stores.zones:
        assert isinstance(zone, ByHourSegmentStore)

        def get(original: Callable[..., bytes], *arguments: object) -> bytes:
            asked.append("old key")
            return original(*arguments)

        zone._earlier = Intercepted(zone.earlier, get=get)
    assert len(read_all(instance, topic)) == 1
    assert asked == []
