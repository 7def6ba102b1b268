"""The pages that compaction rewrites, and the refs that it makes of them."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.compaction.merging import (
    CompactionSettings,
    RefCutter,
    Swap,
    merged_sequences,
    new_pages,
    plan_runs,
    same_but_for_zones,
)
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId
from penstock_core.log.index import EMPTY_HEAD, Page
from penstock_core.log.ref import Ref, Tier, span, stored_bytes
from penstock_core.log.retention import written_ms
from penstock_core.records.producer_state import ProducerSequence
from tests.support.refs import ref_at

NOW_MS, HOUR_MS = 1_790_000_000_000, 3_600_000
SETTINGS = CompactionSettings(refs_min=4, ref_bytes=1_000, segment_bytes=10_000)
KEY = PartitionKey(TopicId("0f" * 10), Partition(3))


def ref(length: int = 50, age_ms: int = 2 * HOUR_MS, offset_span: int = 1, **changes: object) -> Ref:
    made = ref_at(NOW_MS - age_ms, length=length, span=offset_span)
    return replace(made, **changes)  # type: ignore[arg-type]


def pages(*refs_of: list[Ref]) -> list[Page]:
    found: list[Page] = []
    offset = rolled = 0
    for refs in refs_of:
        rolled += stored_bytes(refs)
        newest = max(each.max_timestamp_ms for each in refs)
        found.append(Page(base_offset=Offset(offset), refs=tuple(refs), max_timestamp_ms=newest, rolled_bytes=rolled))
        offset += span(refs)
    return found


def planned(found: list[Page], settings: CompactionSettings = SETTINGS, log_start: int = 0) -> list[list[int]]:
    head = replace(EMPTY_HEAD, log_start_offset=Offset(log_start))
    return [[int(page.base_offset) for page in run] for run in plan_runs(found, head, NOW_MS, settings)]


def test_neighbouring_pages_of_small_refs_make_one_run() -> None:
    assert planned(pages([ref()] * 4, [ref()] * 4, [ref()] * 4)) == [[0, 4, 8]]


def test_run_ends_at_a_young_page_and_goes_on_behind_it() -> None:
    young = [ref()] * 3 + [ref(age_ms=HOUR_MS - 1)]
    assert planned(pages([ref()] * 4, young, [ref()] * 4)) == [[0], [8]]


def test_archived_refs_are_never_young() -> None:
    assert planned(pages([ref(age_ms=0, tier=Tier.ARCHIVE)] * 4)) == [[0]]


def test_run_ends_at_a_page_whose_refs_are_large() -> None:
    large = [ref(500)] * 2 + [ref()] * 2
    assert planned(pages([ref()] * 4, large, [ref()] * 4)) == [[0], [8]]
    assert planned(pages([ref()] * 4, [ref(500), ref(), ref()], [ref()] * 4)) == [[0, 4, 7]]


def test_run_ends_where_a_segment_or_a_transaction_is_full() -> None:
    assert planned(pages(*([[ref(400)] * 10] * 5))) == [[0, 10], [20, 30], [40]]
    many = pages(*([[ref(1)] * 4] * (limits.COMPACTION_RUN_PAGES_MAX + 2)))
    assert list(map(len, planned(many))) == [limits.COMPACTION_RUN_PAGES_MAX, 2]


def test_run_of_few_refs_or_little_gain_is_left() -> None:
    assert planned(pages([ref()] * 3)) == []
    assert planned(pages([ref(450), ref(450), ref(450), ref(450)])) == [[0]]
    assert planned(pages([ref(450), ref(450), ref(450), ref(450), ref(450)])) == []  # 3 of 5


def test_page_that_reaches_below_the_log_start_is_left_unless_only_its_first_ref_does() -> None:
    found = pages([ref(offset_span=5)] * 4, [ref()] * 4)
    assert planned(found, log_start=4) == [[0, 20]]
    assert planned(found, log_start=5) == [[20]]
    assert planned(found, log_start=20) == [[20]]
    assert planned(found, log_start=24) == []


def test_refs_that_span_half_of_the_time_are_large() -> None:
    days = [ref(age_ms=day * 24 * HOUR_MS, tier=Tier.ARCHIVE) for day in (9, 8, 7, 6, 5, 4)]
    assert planned(pages(days[:3], days[3:])) == []
    assert planned(pages(days[:3], days[3:]), replace(SETTINGS, ref_ms_max=100 * 24 * HOUR_MS)) == [[0, 3]]


def cut(lengths: list[int], settings: CompactionSettings = SETTINGS) -> tuple[Ref, ...]:
    cutter = RefCutter(SegmentId(bytes(16)), settings)
    for number, length in enumerate(lengths):
        cutter.add(length, 2, 1, number, ref_at(number))
    return cutter.refs()


@given(st.lists(st.integers(61, 1_500)))
def test_refs_lie_one_behind_the_other_and_are_large_only_when_a_batch_is(lengths: list[int]) -> None:
    refs = cut(lengths)
    assert [each.position for each in refs] == [sum(each.length for each in refs[:n]) for n in range(len(refs))]
    assert (stored_bytes(refs), span(refs)) == (sum(lengths), 2 * len(lengths))
    assert sum(each.record_count for each in refs) == len(lengths)
    assert all(each.length <= 1_000 or each.offset_span == 2 for each in refs)
    assert all(left.length + right.length > 1_000 for left, right in pairwise(refs))


def test_ref_ends_before_it_covers_more_offsets_or_time_than_it_may() -> None:
    cutter = RefCutter(SegmentId(bytes(16)), replace(SETTINGS, ref_ms_max=10))
    for span_, stored_ms in ((2**31, 0), (2**31 - 1, 0), (1, 5), (1, 10), (1, 11)):
        cutter.add(1, span_, 1, -1, ref_at(-1, stored_ms=stored_ms))
    assert [each.offset_span for each in cutter.refs()] == [2**32 - 1, 3]
    cutter = RefCutter(SegmentId(bytes(16)), replace(SETTINGS, ref_ms_max=10))
    for stored_ms in (0, 10, 11):
        cutter.add(1, 1, 1, -1, ref_at(-1, stored_ms=stored_ms))
    assert [each.offset_span for each in cutter.refs()] == [2, 1]


def merged(*sources: Ref) -> Ref:
    cutter = RefCutter(SegmentId(bytes(16)), SETTINGS)
    for source in sources:
        cutter.add(1, 1, 1, source.max_timestamp_ms, source)
    [found] = cutter.refs()
    return found


def test_merged_ref_has_the_tags_of_all_only_if_all_tell_theirs() -> None:
    left, right, silent = ref(tag_filter=0b0011), ref(tag_filter=0b0110), ref()
    assert merged(left, right).tag_filter == 0b0111
    assert merged(ref(tag_filter=0), ref(tag_filter=0)).tag_filter == 0
    assert merged(left, silent, right).tag_filter is None
    assert merged(silent, left).tag_filter is None


def test_merged_ref_counts_from_the_newest_append() -> None:
    old, delayed = ref(age_ms=3 * HOUR_MS), ref(age_ms=4 * HOUR_MS, appended_ms=NOW_MS - 2 * HOUR_MS, is_delayed=True)
    newer = ref(age_ms=HOUR_MS)
    assert merged(newer, old).appended_ms == NOW_MS - HOUR_MS
    assert merged(old, delayed).appended_ms == NOW_MS - 2 * HOUR_MS
    assert merged(old, delayed, newer).appended_ms == NOW_MS - HOUR_MS
    assert [merged(old, newer).is_delayed, merged(delayed, newer).is_delayed] == [False, True]
    assert written_ms(merged(old, delayed, newer)) == NOW_MS - HOUR_MS


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.data())
def test_new_pages_cover_the_same_and_count_from_the_run_s_end(sizes: list[int], data: st.DataObject) -> None:
    old = pages(*([ref(10)] * size for size in sizes))
    left, spans = sum(sizes), []
    while left:
        spans.append(data.draw(st.integers(1, left)))
        left -= spans[-1]
    made = new_pages(old, [ref(10 * each, offset_span=each) for each in spans])
    assert (made[0].base_offset, made[-1].end_offset) == (old[0].base_offset, old[-1].end_offset)
    assert all(before.end_offset == after.base_offset for before, after in pairwise(made))
    assert [page.rolled_bytes for page in made] == [10 * page.end_offset for page in made]
    assert all(len(page.refs) == limits.TAIL_ROLL_REFS for page in made[:-1])
    newest = [page.max_timestamp_ms for page in made]
    assert newest == sorted(newest)


def test_pages_behind_a_run_that_lost_bytes_still_count_right() -> None:
    old = pages([ref(10)] * 4, [ref(10)] * 4)
    [page] = new_pages(old, [ref(30, offset_span=8)])
    assert (page.rolled_bytes, page.rolled_bytes - stored_bytes(page.refs)) == (80, 50)


def numbered(first: int, count: int = 1, producer: int = 1) -> Ref:
    sequence = ProducerSequence(producer_id=producer, epoch=0, first_sequence=first, last_sequence=first + count - 1)
    return ref(offset_span=count, sequence=sequence)


def test_sequences_that_follow_each_other_in_both_are_told_as_one() -> None:
    found = merged_sequences(
        pages([numbered(0, 2), numbered(2, 3)], [ref(), numbered(5)], [numbered(6), numbered(0, producer=2)])
    )
    told = [
        (each.sequence.producer_id, each.sequence.first_sequence, each.sequence.last_sequence, each.base_offset)
        for each in found
    ]
    assert told == [(1, 0, 4, 0), (1, 5, 6, 6), (2, 0, 0, 8)]


def test_largest_swap_fits_into_one_transaction() -> None:
    size = limits.COMPACTION_RUN_PAGES_MAX
    old = pages(*([[ref()] * limits.TAIL_ROLL_REFS] * size))
    refs = [ref(offset_span=2)] * (limits.TAIL_ROLL_REFS * size // 2)
    swap = Swap(old=tuple(old), new=new_pages(old, refs), epoch=1, deadline_ms=0, swapped_ms=0)
    assert swap.actions <= 100
    distinct = replace(swap, new=new_pages(old, [ref(offset_span=1), *refs[1:], ref(offset_span=1)]))
    assert distinct.actions <= 100


def test_bits_of_zones_are_no_difference_and_all_else_is() -> None:
    before = pages([ref()] * 2)
    assert same_but_for_zones(before, pages([ref(zones=3), ref(zones=1)]))
    assert not same_but_for_zones(before, pages([ref(), ref(length=51)]))
    assert not same_but_for_zones(before, pages([ref()], [ref()]))
