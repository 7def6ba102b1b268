from hypothesis import given
from hypothesis import strategies as st

from penstock_core.compaction.cleaning import Cleaner, LatestOffsets, tombstone_horizon, with_cleaned
from penstock_core.compaction.merging import CleaningState
from penstock_core.ids import Offset
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, BytesLike, parse_header, stamp, walk
from tests.support.poison import sealed

KEYS = st.none() | st.sampled_from([b"a", b"b", b"k" * 16, b"k" * 17])
RECORDS = st.builds(NewRecord, timestamp_ms=st.just(5), key=KEYS, value=st.none() | st.just(b"v"), headers=st.just(()))
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=4), min_size=1, max_size=5)
DAY_MS = 86_400_000


def _log(batches: list[list[NewRecord]]) -> list[tuple[int, bytes]]:
    """The batches at consecutive offsets from 0."""
    log, offset = [], 0
    for records in batches:
        data = bytearray(encode(records))
        log.append((offset, bytes(data)))
        offset += len(records)
    return log


def _at(offset: int, batch: BytesLike) -> bytes:
    data = bytearray(batch)
    stamp(data, offset)
    return bytes(data)


def _cleaned(log: list[tuple[int, bytes]], horizon: int = 0) -> tuple[Cleaner, list[tuple[int, BytesLike]]]:
    latest = LatestOffsets()
    for offset, batch in log:
        latest.add(batch, offset)
    cleaner = Cleaner(latest, horizon)
    return cleaner, [*cleaner.clean(log)]


@given(BATCHES, st.integers(0, 10))
def test_cleaner_keeps_the_newest_of_each_key_and_all_without_a_key(
    batches: list[list[NewRecord]], horizon: int
) -> None:
    records = [record for batch in batches for record in batch]
    newest = {record.key: offset for offset, record in enumerate(records)}
    wanted = [
        (offset, record.key, record.value)
        for offset, record in enumerate(records)
        if record.key is None or (newest[record.key] == offset and not (record.value is None and offset < horizon))
    ]
    cleaner, cleaned = _cleaned(_log(batches), horizon)
    found = [(each.offset, each.key, each.value) for offset, batch in cleaned for each in decode(_at(offset, batch))]
    assert found == wanted
    assert cleaner.removed == len(records) - len(wanted)


@given(BATCHES)
def test_cleaned_batches_cover_the_same_offsets(batches: list[list[NewRecord]]) -> None:
    _, cleaned = _cleaned(_log(batches))
    end = 0
    for offset, batch in cleaned:
        assert offset == end
        end += parse_header(batch).offset_span
    assert end == sum(map(len, batches))


def test_empty_batches_that_meet_become_one() -> None:
    record = NewRecord(5, b"a", b"v")
    _, cleaned = _cleaned(_log([[record]] * 4))
    assert [(offset, parse_header(batch).record_count) for offset, batch in cleaned] == [(0, 0), (3, 1)]


def test_batch_that_the_codec_cannot_read_loses_nothing() -> None:
    log = _log([[NewRecord(5, b"a", b"v")], [NewRecord(5, b"a", b"w")]])
    broken = bytearray(log[0][1])
    broken[-1] ^= 1
    cleaner, cleaned = _cleaned([(0, bytes(broken)), log[1]])
    assert cleaned == [(0, bytes(broken)), log[1]]
    assert (cleaner.removed, cleaner.left_whole) == (0, 1)


def test_records_stay_whose_keys_a_batch_has_that_ends_undecodable() -> None:
    """A reader passes over that batch, and so reads no newer record of the key."""
    payload = encode([NewRecord(5, b"k", b"newer")] * 200)[BATCH_HEADER_BYTES:-8]
    log = [(0, encode([NewRecord(5, b"k", b"good")])), (1, sealed(payload + b"\xff" * 8, 200))]
    cleaner, cleaned = _cleaned(log)
    assert (cleaner.removed, cleaner.left_whole, cleaned) == (0, 1, log)


def test_offsets_count_from_where_the_batch_lies_in_the_log() -> None:
    latest = LatestOffsets()
    [(_, header)] = [*walk(batch := encode([NewRecord(5, b"a", b"v"), NewRecord(5, b"k" * 20, b"v")]))]
    latest.add(batch, 100)
    assert (len(latest), header.base_offset) == (2, 0)
    assert latest.is_superseded(b"a", 99)
    assert not latest.is_superseded(b"a", 100)
    assert latest.is_superseded(b"k" * 20, 100)
    assert not latest.is_superseded(b"other", 0)


def test_tombstones_go_below_the_end_of_the_newest_cleaning_that_is_old_enough() -> None:
    marks = [CleaningState(end_offset=Offset(end), at_ms=at_ms) for end, at_ms in ((10, 0), (20, 50), (30, 90))]
    assert [tombstone_horizon(marks, now_ms, 50) for now_ms in (49, 50, 100, 140)] == [0, 10, 20, 30]
    assert tombstone_horizon([], 10**12, 0) == 0


@given(st.lists(st.integers(0, DAY_MS), min_size=1, max_size=200))
def test_marks_stay_few_and_never_let_a_tombstone_go_early(gaps_ms: list[int]) -> None:
    marks: tuple[CleaningState, ...] = ()
    every: list[CleaningState] = []
    now_ms = 0
    for number, gap_ms in enumerate(gaps_ms):
        now_ms += gap_ms
        every.append(CleaningState(end_offset=Offset(number), at_ms=now_ms))
        marks = with_cleaned(marks, Offset(number), now_ms, DAY_MS)
        assert len(marks) <= 20
        assert marks[-1] == every[-1]
        assert set(marks) <= set(every)
        assert tombstone_horizon(marks, now_ms, DAY_MS) <= tombstone_horizon(every, now_ms, DAY_MS)
