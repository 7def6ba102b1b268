"""What every CompactionStore does, in memory and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.compaction import Cleaned, CompactionState, Swap
from penstock_core.ids import Offset, Partition, SegmentId, TopicId
from penstock_core.index import EMPTY_HEAD, Page, appended, roll_due
from penstock_core.keys import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.producer_state import ProducerSequence
from penstock_core.ref import LocatedRef, Ref, Tier
from tests.contract.conftest import Ports

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
PAGES = 4
PRODUCER = 7


def ref(number: int) -> Ref:
    return Ref(
        segment_id=SegmentId(number.to_bytes(16, "big")),
        position=0,
        length=100,
        offset_span=2,
        record_count=2,
        max_timestamp_ms=number,
        zones=0b011,
        sequence=ProducerSequence(
            producer_id=PRODUCER, epoch=1, first_sequence=2 * number, last_sequence=2 * number + 1
        ),
    )


@pytest.fixture
def pages(ports: Ports) -> tuple[Page, ...]:
    """Four pages of 16 refs of 2 records each."""
    ports.log.create_head(KEY)
    head = EMPTY_HEAD
    for number in range(PAGES * TAIL_ROLL_REFS):
        head = ports.log.append(KEY, ref(number), 0)
        if roll := roll_due(replace(head, producers={})):
            assert ports.log.roll(KEY, roll)
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
    cleaned = (Cleaned(end_offset=Offset(10), at_ms=5), Cleaned(end_offset=Offset(20), at_ms=6))
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
    assert ports.log.mark_stored(KEY, LocatedRef(base_offset=Offset(32), ref=pages[1].refs[0]), 0b100)
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
    ids = [SegmentId(number.to_bytes(16, "big")) for number in range(PAGES * TAIL_ROLL_REFS)]
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
    assert ports.compaction.swap(KEY, a_swap(again, epoch, count=2))  # what it merges tells of no producers
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
