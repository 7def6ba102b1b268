"""Translated offsets against a model that knows each record's place."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidError
from penstock_import.copying.copier import Chunk
from penstock_import.copying.starts import KEEP, REHASH, Placement
from penstock_import.progress.chunk_note import (
    ChunkNote,
    SourceRange,
    TargetRange,
    runs_of,
    translate_kept,
    translate_rehashed,
)
from penstock_import.source.records import SourceRecord

_Offsets = Sequence[tuple[int, int]]  # the partition and the gap before each record


@given(st.sets(st.integers(0, 60)), st.integers(0, 5), st.integers(0, 70))
def test_range_counts_records_below_an_offset(later: set[int], start: int, offset: int) -> None:
    offsets = sorted(start + each for each in later)
    found = SourceRange(start=start, next_offset=start + 70, runs=runs_of(start, offsets))
    assert found.records == len(offsets)
    assert found.records_before(offset) == sum(each < offset for each in offsets)


def test_note_survives_its_encoding() -> None:
    note = ChunkNote(
        topic_id="t",
        mode="keep",
        sources={3: SourceRange(start=5, next_offset=12, runs=(0, 2, 1, 3))},
        targets={3: TargetRange(7, 5)},
    )
    assert ChunkNote.decode(note.encode()) == note


@pytest.mark.parametrize("value", [b"", b"[]", b'"text"', b"{}", b'{"v": 1}', b"\xff"])
def test_note_is_refused_when_it_is_none(value: bytes) -> None:
    with pytest.raises(InvalidError, match="no note"):
        ChunkNote.decode(value)


def test_note_is_refused_when_a_later_release_wrote_it() -> None:
    with pytest.raises(InvalidError, match="version 2: a later release"):
        ChunkNote.decode(b'{"v": 2}')


def _copied(
    places: _Offsets, placement: Placement, chunk_records: int, foreign: int
) -> tuple[list[tuple[int, ChunkNote]], dict[tuple[int, int], tuple[int, int]], dict[int, int]]:
    """The notes, the place of each record, and how far each partition is copied. Foreign records come between."""
    positions = {0: 0, 1: 0}
    ends = dict.fromkeys(range(placement.count), 0)
    notes = [
        (
            0,
            ChunkNote(
                topic_id="t",
                mode=placement.mode,
                sources={each: SourceRange(start=0, next_offset=0) for each in positions},
                targets={each: TargetRange(0, 0) for each in ends},
            ),
        )
    ]
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for start in range(0, len(places), chunk_records):
        chunk = Chunk(positions, placement)
        for partition, gap in places[start : start + chunk_records]:
            offset = chunk.positions[partition] + gap
            assert chunk.add(SourceRecord(partition, offset, 0, b"k%d" % (offset % 3), b"", ()))
        notes.append((len(notes), chunk.note("t", ends)))
        for each in ends:
            ends[each] += foreign
        for target, record in chunk.records:
            found[record.partition, record.offset] = (target, ends[target])
            ends[target] += 1
        positions = chunk.positions
    return notes, found, positions


_PLACES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=12)


@given(_PLACES, st.integers(1, 5), st.integers(0, 40), st.integers(0, 40))
def test_kept_offset_is_that_of_the_next_record(places: _Offsets, size: int, first: int, second: int) -> None:
    notes, found, reached = _copied(places, Placement(mode=KEEP, first=0, count=2), size, 0)
    wanted = {0: min(first, reached[0]), 1: min(second, reached[1])}
    translated = translate_kept(wanted, reached, notes)
    for partition, offset in wanted.items():
        later = [at for (each, source), (_, at) in found.items() if each == partition and source >= offset]
        end = sum(each == partition for each, _ in found)
        assert translated.offsets[partition] == min(later, default=end)
    assert not translated.waiting


@given(_PLACES, st.integers(1, 5), st.integers(0, 40), st.integers(0, 40), st.integers(0, 2))
def test_offset_is_never_too_late(places: _Offsets, size: int, first: int, second: int, foreign: int) -> None:
    for mode, targets in ((KEEP, 2), (REHASH, 3)):
        notes, found, reached = _copied(places, Placement(mode=mode, first=0, count=targets), size, foreign)
        wanted = {0: min(first, reached[0]), 1: min(second, reached[1])}
        kept = mode == KEEP
        translated = translate_kept(wanted, reached, notes) if kept else translate_rehashed(wanted, notes)
        for (partition, offset), (target, at) in found.items():
            if offset >= wanted[partition]:
                assert translated.offsets[target] <= at


def test_offset_waits_when_its_record_is_not_copied_yet() -> None:
    notes, _, reached = _copied([(0, 0), (1, 0)], Placement(mode=KEEP, first=0, count=2), 1, 0)
    translated = translate_kept({0: reached[0] + 1, 1: 0}, reached, notes)
    assert (translated.offsets, translated.waiting) == ({1: 0}, (0,))


def test_translation_is_the_same_when_it_begins_at_the_first_note_it_needs() -> None:
    notes, _, reached = _copied([(0, 0)] * 9, Placement(mode=KEEP, first=0, count=2), 2, 0)
    whole = translate_kept({0: 5}, reached, notes)
    assert whole.first_note == 3
    for later, offset in zip(count(5), range(5, 9), strict=False):
        rest = translate_kept({0: later}, reached, [each for each in notes if each[0] >= whole.first_note])
        assert rest.offsets == {0: offset}
