"""The head and its pages: whatever the order of appends and rolls, every offset is covered once, in order.

Jumps: no offset is given twice, a reader is told of lost records or meets none, and no jump counts as records.
"""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import JUMP_MARGIN_OFFSETS, JUMP_OFFSETS_MAX, LOST_HEAD_JUMP_OFFSETS
from penstock_core.log.index import EMPTY_HEAD, Head, Jump, Page, advanced, appended, count_between, jumps_over, past
from penstock_core.log.ref import Ref
from penstock_core.log.retention import searched_ms
from penstock_core.log.roll import is_roll_due, next_page, shortened
from tests.core.log.test_ref import REFS

_OFFSETS = st.integers(0, 60)
_STORED = REFS.filter(lambda ref: ref.offset_span > 0)  # as every ref that is appended
_BOUNDS = st.lists(_OFFSETS, max_size=6, unique=True).map(sorted)


def _append_all(refs: list[Ref], roll_succeeds: list[bool]) -> tuple[Head, list[Page]]:
    head, pages = EMPTY_HEAD, []
    fates = iter(roll_succeeds)
    for ref in refs:
        head = appended(head, ref)
        if is_roll_due(head) and next(fates, True):
            page = next_page(head)
            assert page is not None
            after = shortened(head, page)
            assert after is not None
            head = after
            pages.append(page)
    return head, pages


@given(st.lists(REFS, max_size=70), st.lists(st.booleans()))
def test_pages_and_tail_hold_every_ref_in_order_when_rolls_fail_at_will(refs: list[Ref], fates: list[bool]) -> None:
    head, pages = _append_all(refs, fates)
    assert [ref for page in pages for ref in page.refs] + list(head.tail) == refs
    assert head.next_offset == sum(ref.offset_span for ref in refs)
    bounds = [(page.base_offset, page.end_offset) for page in pages] + [(head.tail_base, head.next_offset)]
    assert bounds[0][0] == 0
    assert all(earlier[1] == later[0] for earlier, later in itertools.pairwise(bounds))


@given(st.lists(REFS, max_size=70))
def test_newest_timestamp_of_pages_never_falls(refs: list[Ref]) -> None:
    head, pages = _append_all(refs, [])
    newest = [page.max_timestamp_ms for page in pages]
    assert newest == sorted(newest)
    rolled_refs = [searched_ms(ref) for page in pages for ref in page.refs]
    assert head.rolled_max_timestamp_ms == max(rolled_refs, default=-1)


def _jumps(bounds: list[int]) -> tuple[Jump, ...]:
    pairs = zip(bounds[::2], bounds[1::2], strict=False)
    return tuple(Jump(start=Offset(start), end=Offset(end)) for start, end in pairs)


def _real(jumps: tuple[Jump, ...], start: int, end: int) -> list[int]:
    return [each for each in range(start, end) if not any(jump.start <= each < jump.end for jump in jumps)]


@given(st.integers(0, 2**34), st.none() | st.integers(0, 2**34))
def test_jump_ends_beyond_every_offset_that_was_given(next_offset: int, harmed: int | None) -> None:
    jumps = jumps_over(Offset(next_offset), None if harmed is None else Offset(harmed))
    assert jumps[0].start == next_offset
    margin = LOST_HEAD_JUMP_OFFSETS if harmed is None else JUMP_MARGIN_OFFSETS
    assert jumps[-1].end == max(next_offset, harmed or 0) + margin
    assert all(0 < jump.end - jump.start <= JUMP_OFFSETS_MAX for jump in jumps)
    assert all(left.end == right.start for left, right in itertools.pairwise(jumps))


@given(_BOUNDS, _OFFSETS, _OFFSETS)
def test_jumps_are_passed_and_counted_as_the_offsets_that_records_have(bounds: list[int], start: int, end: int) -> None:
    jumps = _jumps(bounds)
    assert past(jumps, start) == min(_real(jumps, start, 200))
    assert count_between(jumps, start, end) == len(_real(jumps, start, end))


@given(_BOUNDS, _OFFSETS, st.integers(0, 80))
def test_advanced_position_is_a_readers_and_has_passed_so_many_records(
    bounds: list[int], start: int, count: int
) -> None:
    jumps = _jumps(bounds)
    start = past(jumps, start)
    end = advanced(jumps, start, count)
    assert count_between(jumps, start, end) == count
    assert not any(jump.holds(end) for jump in jumps)


def _head(*jumps: tuple[int, int], log_start: int = 0, next_offset: int = 100) -> Head:
    found = tuple(Jump(start=Offset(start), end=Offset(end)) for start, end in jumps)
    return replace(EMPTY_HEAD, next_offset=Offset(next_offset), log_start_offset=Offset(log_start), jumps=found)


def test_head_tells_a_lost_reader_alone_where_to_go_on() -> None:
    head = _head((10, 30), (30, 40))
    told = {offset: head.next_readable(offset) for offset in (9, 10, 11, 29, 30, 31, 39, 40)}
    assert told == {9: 9, 10: 10, 11: 40, 29: 40, 30: 30, 31: 40, 39: 40, 40: 40}


def test_log_start_within_a_jump_is_a_position() -> None:
    head = _head((10, 30), log_start=20)
    assert (head.next_readable(20), head.next_readable(21)) == (20, 30), "else a reader that resets there would loop"
    assert (head.next_record(0), head.count_from(0)) == (30, 70)


@given(st.lists(_STORED, max_size=70), st.lists(st.booleans()))
def test_stored_bytes_are_those_of_all_refs_while_nothing_is_removed(refs: list[Ref], fates: list[bool]) -> None:
    head, _ = _append_all(refs, fates)
    assert head.stored_bytes == sum(ref.length for ref in refs)


@given(st.lists(_STORED, min_size=1, max_size=70), st.lists(st.booleans()), st.data())
def test_stored_bytes_fall_to_those_of_the_tail_as_the_log_start_rises(
    refs: list[Ref], fates: list[bool], data: st.DataObject
) -> None:
    whole, _ = _append_all(refs, fates)
    lower, higher = sorted(data.draw(st.lists(st.integers(0, whole.next_offset), min_size=2, max_size=2)))
    at = [replace(whole, log_start_offset=Offset(start)).stored_bytes for start in (0, lower, higher)]
    assert at == sorted(at, reverse=True)
    assert replace(whole, log_start_offset=whole.tail_base).stored_bytes == sum(ref.length for ref in whole.tail)
    assert replace(whole, log_start_offset=whole.next_offset).stored_bytes == 0


def test_stored_bytes_count_no_offsets_of_a_jump() -> None:
    """Half of the records are left, and the offsets that a restore left out are not among them."""
    jump = Jump(start=Offset(10), end=Offset(1_010))
    head = replace(
        EMPTY_HEAD,
        next_offset=Offset(1_020),
        tail_base=Offset(1_020),
        rolled_bytes=2_000,
        log_start_offset=Offset(1_010),
        jumps=(jump,),
    )
    assert head.stored_bytes == 1_000
