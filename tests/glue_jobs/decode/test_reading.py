"""From options to records without Spark: a read finds the planned records, whatever happens to the log meanwhile."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import LOST_HEAD_JUMP_OFFSETS, TAIL_ROLL_REFS, UNLIMITED
from penstock_core.log.inline import InlineBounds
from penstock_core.log.ref import DAY_MS, Tier, encode_refs
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_spark.decode.decoding import decode, kafka_schema
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan import planning
from penstock_spark.plan.options import parse_read_options
from penstock_spark.plan.slices import Slice, ranges_of
from tests.glue_jobs.decode.topic_reading import Plan, fill, options, plan, read
from tests.service.retention.test_keep_items import expire, remove_items
from tests.support.restoring import jump
from tests.support.service import (
    Intercepted,
    SteppedClock,
    batch,
    counted_instance,
    entry,
    key_of,
    new_topic,
    patient_instance,
    refs_of,
    send,
    with_stores,
)


@pytest.fixture
def instance() -> Instance:
    return patient_instance()


def test_a_read_finds_every_record_of_every_partition_once(instance: Instance) -> None:
    new_topic(instance, partitions=3)
    expected = fill(instance, 40, 0) + fill(instance, 3, 2)

    assert read(instance, plan(instance)) == expected


def test_a_read_finds_small_appends_in_the_log_table_among_others(instance: Instance) -> None:
    new_topic(instance, partitions=3)
    inline = with_stores(instance, small=InlineBounds(swept_bytes=200))
    for number in range(20):
        for each in range(2):
            send(inline if number % 3 else instance, "orders", f"{each} {number}", partition=each)
    produce(inline, [entry("orders", each, batch(f"{each} last")) for each in range(3)], Acks.ALL)
    expected = [(each, number, f"{each} {number}") for each in range(2) for number in range(20)]
    expected += [(0, 20, "0 last"), (1, 20, "1 last"), (2, 0, "2 last")]

    assert sorted(read(instance, plan(instance))) == sorted(expected)


def with_expiring_items(count: int) -> tuple[Instance, Plan, list[tuple[int, int, str]]]:
    """A topic of small appends whose items' TTL is over, a plan from before that, and the records."""
    clock = SteppedClock()
    instance = with_stores(patient_instance(clock), small=InlineBounds.of_both(1_000))
    new_topic(instance, retention_ms=7 * DAY_MS)
    expected = fill(instance, count)
    planned = plan(instance)
    clock.time_ms += 17 * DAY_MS
    return instance, planned, expected


def test_expired_small_append_is_a_gap_until_retention_passes_it() -> None:
    instance, planned, expected = with_expiring_items(5)
    expire(instance, "orders", 1, 2)

    assert read(instance, planned) == [expected[0], *expected[3:]]


def test_small_append_that_a_raise_should_have_kept_is_an_error() -> None:
    instance, planned, _ = with_expiring_items(5)
    topic = instance.topic_cache.read_through("orders")
    instance.stores.topics.replace(topic, replace(topic, config=replace(topic.config, retention_ms=UNLIMITED)))
    expire(instance, "orders", 1)

    with pytest.raises(PenstockError, match="the log table has no segment"):
        read(instance, planned)


def test_small_appends_that_a_merge_moved_before_they_expired_are_read_where_they_are() -> None:
    instance, planned, expected = with_expiring_items(2 * TAIL_ROLL_REFS)
    old = [each.ref.segment_id for each in refs_of(instance, key_of(instance, "orders"))]
    assert compact(instance, "orders", 0, CompactionSettings(refs_min=2)).runs == 1
    remove_items(instance, old)

    assert read(instance, planned) == expected


def test_one_get_reads_the_batches_that_one_request_appended_to_many_partitions(instance: Instance) -> None:
    new_topic(instance, partitions=20)
    for number in range(3):
        produce(instance, [entry("orders", each, batch(f"v{number}")) for each in range(20)], Acks.ALL)
    counts: Counter[str] = Counter()

    found = read(counted_instance(instance, counts), plan(instance))

    assert counts["zone.get"] == 3
    assert sorted(found) == [(each, number, f"v{number}") for each in range(20) for number in range(3)]


@given(
    requests=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True), max_size=12),
    swaps=st.sets(st.integers(0, 3), max_size=2),
    range_bytes=st.integers(1, 400),
)
@settings(max_examples=60)
def test_partitions_that_share_gets_are_each_read_in_their_order(
    requests: list[list[int]], swaps: set[int], range_bytes: int
) -> None:
    instance = patient_instance()
    for name in ("bills", "orders"):
        new_topic(instance, name, partitions=4)
    expected: dict[tuple[str, int], list[str]] = {}
    for number, partitions in enumerate(requests):
        for name in ("orders", "bills") if number % 3 else ("orders",):
            for each in partitions:
                expected.setdefault((name, each), []).append(f"v{number}")
        entries = [entry(name, each, batch(f"v{number}")) for each in partitions for name in ("bills", "orders")]
        produce(instance, entries if number % 3 else entries[1::2], Acks.QUORUM)
    read_options = options(subscribe="bills,orders")
    slices = [each for task in plan(instance, read_options) for each in task]
    slices = [in_reverse(each) if each.key.partition in swaps else each for each in slices]

    stored = read_slices(instance, slices, range_bytes=range_bytes, fails_on_data_loss=True, shares_ranges=True)

    found: dict[tuple[str, int], list[str]] = {}
    topics = []
    for records in decode(stored, kafka_schema(with_headers=False)):
        for row in records.to_pylist():
            found.setdefault((row["topic"], row["partition"]), []).append(row["value"].decode())
            topics.append(row["topic"])
    assert found == {
        (topic, partition): values[::-1] if partition in swaps else values
        for (topic, partition), values in expected.items()
    }
    assert topics == sorted(topics), "topics do not alternate: each change would be an Arrow batch of its own"


def in_reverse(one: Slice) -> Slice:
    """The slice of a partition whose head ordered the same appends in reverse."""
    refs = [located.ref for located in one.located()]
    return replace(one, refs=encode_refs(reversed(refs)))


def test_a_read_of_an_empty_topic_finds_nothing(instance: Instance) -> None:
    new_topic(instance, partitions=2)

    assert plan(instance) == []
    assert read(instance, [()]) == []


@given(count=st.integers(0, 50), bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)), size=st.integers(1, 2_000))
@settings(max_examples=40)
def test_a_read_between_offsets_finds_exactly_them_however_it_is_cut(
    count: int, bounds: tuple[int, int], size: int
) -> None:
    instance = patient_instance()
    new_topic(instance)
    for number in range(0, count, 5):
        send(instance, "orders", *(f"v{each}" for each in range(number, min(number + 5, count))))
    start, end = min(bounds[0], count), min(bounds[1], count)
    read_options = options(
        startingOffsets=json.dumps({"orders": {"0": start}}),
        endingOffsets=json.dumps({"orders": {"0": end}}),
        partitionBytes=size,
    )

    assert read(instance, plan(instance, read_options), read_options) == [
        (0, each, f"v{each}") for each in range(start, end)
    ]


def test_a_snapshot_does_not_see_what_comes_after_it(instance: Instance) -> None:
    new_topic(instance)
    expected = fill(instance, 20)
    planned = plan(instance)
    fill(instance, 40, start=20)  # these appends roll the tail

    assert read(instance, planned) == expected


def test_tasks_are_of_bounded_bytes_and_as_many_as_min_partitions_asks_for(instance: Instance) -> None:
    new_topic(instance, partitions=2)
    fill(instance, 30, 0)
    expected = fill(instance, 30, 0, start=30) and [(0, n, f"v{n}") for n in range(60)] + fill(instance, 20, 1)

    assert len(plan(instance)) == 1
    bounded = plan(instance, options(partitionBytes=800))
    assert all(sum(located.ref.length for each in task for located in each.located()) <= 800 for task in bounded)
    assert len(plan(instance, options(minPartitions=8))) >= 8
    assert read(instance, bounded) == expected
    assert read(instance, plan(instance, options(minPartitions=1_000))) == expected


def test_assigned_partitions_alone_are_read(instance: Instance) -> None:
    new_topic(instance, partitions=3)
    fill(instance, 2, 0)
    expected = fill(instance, 2, 1)
    read_options = parse_read_options({"assign": '{"orders": [1]}'}, is_stream=False)

    assert read(instance, plan(instance, read_options)) == expected


def test_a_pattern_matches_whole_names(instance: Instance) -> None:
    for name in ("orders", "orders-eu", "reorders"):
        new_topic(instance, name)
        send(instance, name, name)
    read_options = parse_read_options({"subscribePattern": "orders(-..)?"}, is_stream=False)

    assert [value for _, _, value in read(instance, plan(instance, read_options))] == ["orders", "orders-eu"]


def test_times_choose_offsets(instance: Instance) -> None:
    new_topic(instance)
    for time_ms in (1_000, 2_000, 3_000, 4_000):
        produce(instance, [entry("orders", 0, batch(f"at {time_ms}", timestamp_ms=time_ms))], Acks.QUORUM)

    both = options(startingTimestamp=1_500, endingOffsetsByTimestamp='{"orders": {"0": 4000}}')
    assert [value for *_, value in read(instance, plan(instance, both))] == ["at 2000", "at 3000"]
    late = options(startingTimestamp=9_000)
    with pytest.raises(PenstockError, match="startingOffsetsByTimestampStrategy=latest"):
        plan(instance, late)
    assert plan(instance, replace(late, is_latest_without_match=True)) == []
    assert len(read(instance, plan(instance, options(endingTimestamp=9_000)))) == 4


@pytest.mark.parametrize(
    "given", ['{"orders": {"0": 1}}', '{"orders": {"0": 1, "1": 1, "2": 1}}', '{"bills": {"0": 1}}']
)
def test_offsets_must_name_the_partitions_that_are_read(instance: Instance, given: str) -> None:
    new_topic(instance, partitions=2)

    with pytest.raises(PenstockError, match="startingOffsets must name every partition"):
        plan(instance, options(startingOffsets=given))


def test_plan_is_refused_when_the_topic_is_unknown(instance: Instance) -> None:
    with pytest.raises(PenstockError, match="'orders' does not exist"):
        plan(instance)


def test_neighbours_in_a_segment_are_read_by_one_request(instance: Instance) -> None:
    new_topic(instance)
    for _ in range(4):
        send(instance, "orders", *(f"{n}" for n in range(50)))
    [slices] = plan(instance)
    [one] = slices
    located = list(one.located())
    first = located[0].ref
    end, side_by_side = 0, []
    for each in located:
        ref = replace(each.ref, segment_id=first.segment_id, position=end, tier=Tier.ZONAL)
        side_by_side.append(replace(each, ref=ref))
        end += ref.length

    joined = replace(one, refs=encode_refs(each.ref for each in side_by_side))
    assert [(found.range.position, found.range.length) for found in ranges_of([joined], end)] == [(0, end)]
    assert len(list(ranges_of([joined], end // 2))) == 2
    assert len(list(ranges_of([one], end))) == 4


@pytest.mark.parametrize("merged_after", range(1, 6))
def test_a_merge_while_the_index_is_read_neither_repeats_nor_loses_records(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, merged_after: int
) -> None:
    """The merge comes after so many of five pages. The reader then meets one ref that begins below the planned
    offsets."""
    new_topic(instance)
    expected = fill(instance, 5 * TAIL_ROLL_REFS + 3)
    monkeypatch.setattr(planning, "INDEX_RUN_PAGES", 1)
    queries = 0

    def pages(original: Any, *arguments: Any) -> Any:
        nonlocal queries
        if queries == merged_after:
            at_once = replace(CompactionSettings(), age_ms_min=-1, refs_min=2)
            assert compact(instance, "orders", 0, at_once).runs == 1
        queries += 1
        return original(*arguments)

    planned = plan(with_stores(instance, log=Intercepted(instance.stores.log, pages=pages)))
    assert queries > merged_after or merged_after == 5
    assert read(instance, planned) == expected


@pytest.mark.parametrize("appends", [5, 3 * TAIL_ROLL_REFS])
def test_jump_of_a_restore_has_no_rows(instance: Instance, appends: int) -> None:
    new_topic(instance)
    before = fill(instance, appends)
    jump(instance)
    fill(instance, appends)
    after = [(0, appends + LOST_HEAD_JUMP_OFFSETS + number, f"v{number}") for number in range(appends)]
    assert read(instance, plan(instance)) == before + after
