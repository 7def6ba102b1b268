"""The contract of CompactionStore, held by the adapters in memory and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.compaction.merging import CleaningState, CompactionState, Swap
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import EMPTY_HEAD, Page, appended
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.roll import next_page
from penstock_core.records.producer_state import ProducerSequence
from tests.contract.conftest import Ports
from tests.support.refs import ref_at
from tests.support.rolling import roll_if_due

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
PAGES = 4
PRODUCER = 7


def ref(number: int) -> Ref:
    sequence = ProducerSequence(producer_id=PRODUCER, epoch=1, first_sequence=2 * number, last_sequence=2 * number + 1)
    return ref_at(number, sequence, span=2, zones=0b011)


@pytest.fixture
def pages(ports: Ports) -> tuple[Page, ...]:
    """Four pages of 16 refs of 2 records each."""
    ports.log.create_head(KEY)
    head = EMPTY_HEAD
    for number in range(PAGES * TAIL_ROLL_REFS):
        head = ports.log.append(KEY, ref(number), 0).head
        roll_if_due(ports.log, KEY, head)
    assert appended(EMPTY_HEAD, ref(0)).next_offset == 2
    return tuple(ports.log.pages(KEY, Offset(0), 100))


def merged(pages: tuple[Page, ...], count: int = 1) -> tuple[Page, ...]:
    """Pages of one ref each that cover the same."""
    start, end = pages[0].base_offset, pages[-1].end_offset
    span = (end - start) // count
    return tuple(
        Page(
            base_offset=Offset(start + number * span),
            refs=(replace(ref(1_000 + number), offset_span=span, record_count=span, tier=Tier.ARCHIVE, sequence=None),),
            max_timestamp_ms=pages[-1].max_timestamp_ms,
            rolled_bytes=pages[-1].rolled_bytes,
        )
        for number in range(count)
    )


def held(ports: Ports) -> CompactionState:
    state = ports.compaction.acquire(KEY, 1_000, 2_000)
    assert state is not None
    return state


def a_swap(pages: tuple[Page, ...], epoch: int, count: int = 1, swapped_ms: int = 1_500) -> Swap:
    return Swap(old=pages, new=merged(pages, count), epoch=epoch, deadline_ms=3_000, swapped_ms=swapped_ms)


def test_lease_is_one_caller_s_until_its_deadline_and_then_the_next_one_s(ports: Ports) -> None:
    first = ports.compaction.acquire(KEY, 1_000, 2_000)
    assert (first, ports.compaction.acquire(KEY, 2_000, 9_000)) == (CompactionState(epoch=1, deadline_ms=2_000), None)
    second = ports.compaction.acquire(KEY, 2_001, 3_000)
    assert second == CompactionState(epoch=2, deadline_ms=3_000)
    assert first is not None
    assert not ports.compaction.save(KEY, first)


def test_what_was_cleaned_is_kept_for_the_next_holder(ports: Ports) -> None:
    cleaned = (CleaningState(end_offset=Offset(10), at_ms=5), CleaningState(end_offset=Offset(20), at_ms=6))
    assert ports.compaction.save(KEY, replace(held(ports), deadline_ms=0, cleaned=cleaned))
    assert ports.compaction.acquire(KEY, 1, 9) == CompactionState(epoch=2, deadline_ms=9, cleaned=cleaned)


def test_save_is_refused_when_nobody_ever_held_the_lease(ports: Ports) -> None:
    assert not ports.compaction.save(KEY, CompactionState(epoch=0, deadline_ms=0))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_swap_exchanges_the_pages_and_extends_the_lease(ports: Ports, pages: tuple[Page, ...], count: int) -> None:
    swap = a_swap(pages, held(ports).epoch, count)
    assert ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == swap.new
    assert ports.compaction.acquire(KEY, 2_999, 9_000) is None
    assert ports.compaction.acquire(KEY, 3_001, 9_000) is not None


def test_swap_leaves_the_pages_around_it_alone(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages[1:3], held(ports).epoch)
    assert ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == (pages[0], *swap.new, pages[3])


def test_swap_is_refused_and_changes_nothing_when_it_is_repeated(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch)
    assert ports.compaction.swap(KEY, swap)
    assert not ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == swap.new


def test_swap_is_refused_when_a_ref_was_marked_meanwhile(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch)
    assert ports.log.mark_stored(KEY, {LocatedRef(base_offset=Offset(32), ref=pages[1].refs[0]): 0b100})
    now = tuple(ports.log.pages(KEY, Offset(0), 100))
    assert now != pages
    assert not ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == now
    assert not ports.compaction.retired(KEY, 0)


def test_swap_is_refused_when_a_page_is_gone(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch)
    ports.log.delete_page(KEY, pages[0].end_offset)
    assert not ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == pages[1:]


def test_swap_leaves_marks_that_refuse_the_pages_it_merged(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch, 2)
    assert ports.compaction.swap(KEY, swap)
    for page in pages:
        twin = next((each for each in swap.new if each.end_offset == page.end_offset), None)
        assert ports.log.put_page(KEY, page) == twin
        assert not ports.log.replace_page(KEY, page, page)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == swap.new


def test_pages_step_over_the_marks_of_merged_pages(ports: Ports, pages: tuple[Page, ...]) -> None:
    first = a_swap(pages[:3], held(ports).epoch)
    assert ports.compaction.swap(KEY, first)
    [merged_page] = first.new
    for offset in (0, 33, 95):
        assert tuple(ports.log.pages(KEY, Offset(offset), 1)) == first.new
        assert tuple(ports.log.pages(KEY, Offset(offset), 2)) == (merged_page, pages[3])
    assert tuple(ports.log.pages_before(KEY, pages[3].end_offset, 2)) == (pages[3], merged_page)
    second = a_swap((merged_page, pages[3]), 1, swapped_ms=1_600)
    assert ports.compaction.swap(KEY, second)
    assert tuple(ports.log.pages(KEY, Offset(0), 1)) == second.new
    assert tuple(ports.log.pages_before(KEY, pages[3].end_offset, 1)) == second.new
    assert tuple(ports.log.pages_before(KEY, Offset(pages[3].end_offset - 1), 1)) == ()


def test_pages_step_over_more_than_a_hundred_marks_in_a_row(ports: Ports) -> None:
    ports.log.create_head(KEY)
    whole = replace(ref(0), offset_span=130, sequence=None)
    ports.log.append(KEY, whole, 0)
    ports.log.shorten_tail(KEY, Page(base_offset=Offset(0), refs=(whole,), max_timestamp_ms=0))
    small = [
        Page(
            base_offset=Offset(number),
            refs=(replace(ref(number), offset_span=1, sequence=None),),
            max_timestamp_ms=number,
        )
        for number in range(130)
    ]
    for page in small:
        ports.log.put_page(KEY, page)
    epoch = held(ports).epoch
    for row in (small[:64], small[64:128]):
        assert ports.compaction.swap(KEY, a_swap(tuple(row), epoch))
    halves = tuple(ports.log.pages(KEY, Offset(0), 2))
    last = a_swap(halves, epoch, swapped_ms=1_600)
    assert ports.compaction.swap(KEY, last)
    left = [*last.new, *small[128:]]
    for limit in (1, 2, 3, 500):
        assert list(ports.log.pages(KEY, Offset(0), limit)) == left[:limit]
        assert list(ports.log.pages(KEY, Offset(63), limit)) == left[:limit]
        assert list(ports.log.pages_before(KEY, Offset(130), limit)) == left[::-1][:limit]
        assert list(ports.log.pages_before(KEY, Offset(127), limit)) == []


def test_swap_is_refused_when_a_page_is_not_yet_below_the_tail_base(ports: Ports, pages: tuple[Page, ...]) -> None:
    for number in range(PAGES * TAIL_ROLL_REFS, (PAGES + 1) * TAIL_ROLL_REFS):
        head = ports.log.append(KEY, ref(number), 0).head
    page = next_page(head)
    assert page is not None
    assert ports.log.put_page(KEY, page) == page
    swap = a_swap((*pages, page), held(ports).epoch)
    assert not ports.compaction.swap(KEY, swap)
    assert ports.log.shorten_tail(KEY, page)[0]
    assert ports.compaction.swap(KEY, swap)


def test_swap_is_refused_when_the_partition_has_no_head(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch)
    ports.log.delete_head(KEY)
    assert not ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == pages


def test_swap_is_refused_under_another_epoch(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch)
    assert ports.compaction.acquire(KEY, 2_001, 3_000) is not None
    assert not ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == pages


def test_retired_segments_are_told_by_when_they_were(ports: Ports, pages: tuple[Page, ...]) -> None:
    epoch = held(ports).epoch
    assert not ports.compaction.retired(KEY, 0)
    assert ports.compaction.swap(KEY, a_swap(pages[:2], epoch, swapped_ms=1_500))
    assert ports.compaction.swap(KEY, a_swap(pages[2:], epoch, swapped_ms=99_999))
    ids = [ref(number).segment_id for number in range(PAGES * TAIL_ROLL_REFS)]
    assert sorted(ports.compaction.retired(KEY, 0)) == ids
    assert sorted(ports.compaction.retired(KEY, 1_500)) == ids
    assert sorted(ports.compaction.retired(KEY, 1_501)) == ids[32:]
    assert not ports.compaction.retired(KEY, 100_000)


def sequence(first: int, last: int, epoch: int = 1, producer: int = PRODUCER) -> ProducerSequence:
    return ProducerSequence(producer_id=producer, epoch=epoch, first_sequence=first, last_sequence=last)


def test_merged_sequences_are_found_with_their_first_offset(ports: Ports, pages: tuple[Page, ...]) -> None:
    epoch = held(ports).epoch
    assert ports.compaction.find_merged(KEY, sequence(0, 1)) is None
    assert ports.compaction.swap(KEY, a_swap(pages[:2], epoch))
    again = tuple(ports.log.pages(KEY, Offset(0), 1))
    assert ports.compaction.swap(KEY, a_swap(again, epoch, count=2))  # the pages that it merges have no sequences
    for first, last in ((0, 1), (0, 63), (62, 63), (5, 6)):
        assert ports.compaction.find_merged(KEY, sequence(first, last)) == first
    assert ports.compaction.find_merged(KEY, sequence(63, 64)) is None
    assert ports.compaction.find_merged(KEY, sequence(0, 1, epoch=2)) is None
    assert ports.compaction.find_merged(KEY, sequence(0, 1, producer=8)) is None


def test_swap_of_as_many_pages_as_a_transaction_takes(ports: Ports, pages: tuple[Page, ...]) -> None:
    swap = a_swap(pages, held(ports).epoch, count=64)
    assert swap.actions == 64 + 4
    assert ports.compaction.swap(KEY, swap)
    assert tuple(ports.log.pages(KEY, Offset(0), 100)) == swap.new
