import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import MIB
from penstock_core.records.codec import NewRecord, empty_batch, encode, keep_records
from penstock_core.records.record_batch import stamp
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_service.share.batches.decode_batches import DecodedRecords, decode_batches
from penstock_service.share.batches.read_batches import StoredBatch
from tests.support.poison import NOW_MS, bomb, undecodable_batch


def stored(*batches: tuple[bytes, int]) -> list[StoredBatch]:
    """The batches, each with the offsets that it covers, one behind the other."""
    found, base_offset = [], 0
    for data, span in batches:
        stamped = bytearray(data)
        stamp(stamped, base_offset)
        next_offset = Offset(base_offset + span)
        found.append(StoredBatch(base_offset=Offset(base_offset), next_offset=next_offset, data=memoryview(stamped)))
        base_offset += span
    return found


def plain(count: int, value: bytes = b"v") -> tuple[bytes, int]:
    return encode([NewRecord(NOW_MS, None, value)] * count), count


def offsets(decoded: DecodedRecords) -> list[int]:
    return [each.offset for each in decoded.records]


def test_decode_batches_stops_behind_the_bomb_that_spends_the_budget() -> None:
    batches = stored((bomb(3 * MIB), 1), (bomb(3 * MIB), 1), (bomb(3 * MIB), 1), plain(2))
    decoded = decode_batches(batches, ((0, 5),), DecodeBudget(5 * MIB))
    assert (offsets(decoded), decoded.left_out) == ([0, 1], ((2, 5),))


def test_decode_batches_stops_within_a_batch_of_many_small_records() -> None:
    [batch] = stored(plain(10_000))
    start = 0
    for _ in itertools.count():
        decoded = decode_batches([batch], ((start, 10_000),), DecodeBudget(1 * MIB))
        assert offsets(decoded) == list(range(start, start + len(decoded.records)))
        assert 0 < len(decoded.records) <= 4_096
        start += len(decoded.records)
        if not decoded.left_out:
            break
        assert decoded.left_out == ((start, 10_000),)
    assert start == 10_000


def test_decode_batches_decodes_the_first_record_however_small_the_budget() -> None:
    decoded = decode_batches(stored(plain(1, bytes(MIB)), plain(1)), ((0, 2),), DecodeBudget(1))
    assert (offsets(decoded), decoded.left_out) == ([0], ((1, 2),))


def test_decode_batches_goes_on_behind_a_batch_that_cannot_be_decoded() -> None:
    decoded = decode_batches(stored((undecodable_batch(5), 5), plain(2)), ((1, 7),), DecodeBudget(MIB))
    assert (offsets(decoded), decoded.undecodable, decoded.left_out) == ([5, 6], ((1, 5),), ())


def test_decode_batches_passes_an_empty_batch_of_a_billion_offsets_at_once() -> None:
    decoded = decode_batches(stored((empty_batch(2**30), 2**30), plain(1)), ((0, 2**30 + 1),), DecodeBudget(MIB))
    assert (offsets(decoded), decoded.removed) == ([2**30], ((0, 2**30),))


def test_decode_batches_names_the_records_that_compaction_removed() -> None:
    data = keep_records(encode([NewRecord(NOW_MS, None, b"v")] * 3), lambda record: record.offset == 1)
    assert data is not None
    decoded = decode_batches(stored((bytes(data), 3)), ((0, 3),), DecodeBudget(MIB))
    assert (offsets(decoded), decoded.removed) == ([1], ((0, 1), (2, 3)))


@given(st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)), st.integers(1, 10 * 256))
def test_each_wanted_offset_has_one_fate(kept: set[int], asked: set[int], budget_bytes: int) -> None:
    whole = encode([NewRecord(NOW_MS, None, b"v")] * 10)
    batches = [(_only({each - base for each in kept}, whole), 10) for base in (0, 10, 20)]
    wanted: Ranges = normalized((each, each + 1) for each in asked)
    decoded = decode_batches(stored(*batches), wanted, DecodeBudget(budget_bytes))
    fates = [*offsets(decoded), *RecordSet(decoded.removed).offsets(), *RecordSet(decoded.left_out).offsets()]
    assert sorted(fates) == sorted(asked)
    assert set(offsets(decoded)) <= kept
    assert not set(RecordSet(decoded.removed).offsets()) & kept


def _only(kept: set[int], whole: bytes) -> bytes:
    return bytes(keep_records(whole, lambda record: record.offset in kept) or empty_batch(10))
