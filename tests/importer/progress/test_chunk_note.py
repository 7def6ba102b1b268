import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidError
from penstock_import.progress.chunk_note import ChunkNote, SourceRange, TargetRange, runs_of


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
