"""The plan of a move of a tail's refs to the archive, and its effect on the head."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.compaction.tail_move import has_moved, live_tail, refs_to_move, tail_move, with_bits_of
from penstock_core.ids import Offset, new_segment_id
from penstock_core.log.index import EMPTY_HEAD, Head, appended
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.retention import written_ms
from tests.support.refs import one_sequence, ref_at
from tests.support.rolling import moved

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
SETTINGS = CompactionSettings(age_ms_min=HOUR_MS, zonal_ms_max=4 * HOUR_MS)
SEGMENT = new_segment_id(NOW_MS, b"x" * 10)


def head_of(*hours: float, log_start: int = 0, **changes: Tier) -> Head:
    """A head with a ref of two records for each of these ages."""
    head = EMPTY_HEAD
    for number, age in enumerate(hours):
        stored_ms = int(NOW_MS - age * HOUR_MS)
        head = appended(head, ref_at(stored_ms, one_sequence(7, number), span=2, length=100 + number, **changes))
    return replace(head, log_start_offset=Offset(log_start))


@pytest.mark.parametrize(
    ("hours", "log_start", "wanted"),
    [
        ((3.9, 2, 0.5), 0, []),  # none is due
        ((4, 2, 1, 0.5), 0, [0, 2, 4]),  # one is due, and the others that are old enough go along
        ((0.5, 4), 0, [2]),  # ids come from the clocks of many writers
        ((9, 8, 7), 2, [2, 4]),  # the first lies below the log start
        ((9, 8, 7), 1, [0, 2, 4]),  # a part of the first does
        ((9, 3), 2, []),
    ],
)
def test_refs_move_once_one_of_them_is_due(hours: tuple[float, ...], log_start: int, wanted: list[int]) -> None:
    head = head_of(*hours, log_start=log_start)
    assert [each.base_offset for each in refs_to_move(head, NOW_MS, SETTINGS)] == wanted
    assert not refs_to_move(head, NOW_MS, replace(SETTINGS, zonal_ms_max=None))


def test_refs_of_the_archive_do_not_move() -> None:
    assert not refs_to_move(head_of(9, 8, tier=Tier.ARCHIVE), NOW_MS, SETTINGS)


def test_live_tail_is_above_the_log_start() -> None:
    assert [each.base_offset for each in live_tail(head_of(1, 1, 1, log_start=3))] == [2, 4]


def test_moved_ref_says_all_that_the_old_one_said_but_where_its_bytes_lie() -> None:
    head = replace(head_of(9, 8, 7), tail_base=Offset(0))
    old = replace(head.tail[1], tag_filter=5, zones=0b101)
    head = replace(head, tail=(head.tail[0], old, head.tail[2]))
    after = moved(head, tail_move(head, head.located_tail()[1:], SEGMENT, NOW_MS))
    assert replace(after, tail=head.tail) == head
    archived: Any = {"segment_id": SEGMENT, "tier": Tier.ARCHIVE}
    assert after.tail == (
        head.tail[0],
        replace(old, position=0, zones=0, **archived, appended_ms=NOW_MS - 8 * HOUR_MS),
        replace(head.tail[2], position=101, zones=0, **archived, appended_ms=NOW_MS - 7 * HOUR_MS),
    )


def test_moved_ref_expires_when_it_would_have() -> None:
    head = head_of(9)
    timeless = replace(head, tail=(replace(head.tail[0], max_timestamp_ms=-1),))
    after = moved(timeless, tail_move(timeless, timeless.located_tail(), SEGMENT, NOW_MS))
    assert written_ms(after.tail[0]) == written_ms(timeless.tail[0]) == NOW_MS - 9 * HOUR_MS


def located(head: Head, *places: int) -> list[LocatedRef]:
    return [head.located_tail()[place] for place in places]


def changed(head: Head, place: int, ref: Ref) -> Head:
    return replace(head, tail=(*head.tail[:place], ref, *head.tail[place + 1 :]))


def test_move_retires_the_old_segments_up_to_its_last_offset() -> None:
    head = head_of(9, 8, 7)
    move = tail_move(head, located(head, 0, 2), SEGMENT, NOW_MS)
    assert move.retired == {head.tail[0].segment_id, head.tail[2].segment_id}
    assert move.end_offset == 6


def test_lost_answer_is_told_from_another_writer() -> None:
    head = head_of(9, 8, 7)
    move = tail_move(head, located(head, 0, 2), SEGMENT, NOW_MS)
    other = tail_move(head, located(head, 0, 2), new_segment_id(NOW_MS, b"y" * 10), NOW_MS)
    mine, others = moved(head, move), moved(head, other)
    assert has_moved(mine, move)
    assert not has_moved(others, move)
    assert not has_moved(head, move)
    assert not has_moved(replace(mine, tail_base=Offset(2)), move)


def test_move_goes_on_from_bits_that_were_set_meanwhile_and_from_nothing_else() -> None:
    head = changed(head_of(9, 8, 7), 2, replace(head_of(9, 8, 7).tail[2], zones=0b011))
    move = tail_move(head, located(head, 0, 2), SEGMENT, NOW_MS)
    marked = changed(head, 2, replace(head.tail[2], zones=0b111))
    again = with_bits_of(move, marked)
    assert again is not None
    assert (again.new, again.end_offset) == (move.new, move.end_offset)
    assert moved(marked, again) == changed(changed(head, 0, move.new[0]), 2, move.new[2])
    assert with_bits_of(move, replace(marked, tail_base=Offset(2))) is None
    assert with_bits_of(move, replace(head, tail=head.tail[:2])) is None
    assert with_bits_of(move, changed(head, 2, move.new[2])) is None
