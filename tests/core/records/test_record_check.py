import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, Compression, parse_header
from penstock_core.records.record_check import DecodeBudget, check_records, check_times, keyless_records
from tests.support.poison import NOW_MS, bomb, sealed, undecodable_batch

GOOD = encode([NewRecord(NOW_MS, b"k", b"v"), NewRecord(NOW_MS - 5, None, None, [("n", b"v")])], Compression.ZSTD)


def records_of(batch: bytes) -> bytes:
    return batch[BATCH_HEADER_BYTES:]


def refusal(*batches: bytes, bytes_max: int = 10 * MIB) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        check_records(b"".join(batches), DecodeBudget(bytes_max))
    return caught.value


@pytest.mark.parametrize("compression", Compression)
def test_batches_of_the_codec_pass(compression: Compression) -> None:
    records = [NewRecord(NOW_MS + number % 3, b"k", b"v" * number) for number in range(300)]
    check_records(encode(records, compression) * 3 + GOOD, DecodeBudget(10 * MIB))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (undecodable_batch(5), "its 5 records cannot be read"),
        (bomb(65 * MIB), "expands beyond"),
        (sealed(records_of(encode([NewRecord(NOW_MS, None, b"v")])), 3), "cannot be read"),
        (sealed(records_of(encode([NewRecord(NOW_MS, None, b"v")] * 3)), 1), "cannot be read"),
        (bomb(10, max_timestamp_ms=2**63 - 1), "its max timestamp is 9223372036854775807, and it is 1790000000000"),
        (bomb(10, last_offset_delta=7), None),
    ],
)
def test_a_batch_is_refused_when_it_does_not_hold_what_it_claims(batch: bytes, message: str | None) -> None:
    if message is None:
        check_records(batch, DecodeBudget(10 * MIB))  # `validate` has refused a span that the count contradicts
        return
    error = refusal(GOOD, batch)
    assert error.code.http_status == 400
    assert error.facts == {"batch": 1}
    assert error.message.startswith(f"batch 1 at byte {len(GOOD)}: ")
    assert message in error.message
    assert "seek" not in error.message  # the producer is told, who reads nothing
    assert len(error.message) < 400


def test_a_batch_is_refused_when_its_records_are_not_dense() -> None:
    one = bytearray(records_of(encode([NewRecord(NOW_MS, None, b"v")])))
    one[3] = 2  # the offset delta 1
    assert "record 0 has the offset delta 1" in refusal(sealed(bytes(one), 1, last_offset_delta=5)).message


def test_batches_are_refused_once_a_request_has_decoded_its_bytes() -> None:
    error = refusal(bomb(3 * MIB), bomb(3 * MIB), bomb(3 * MIB), bytes_max=5 * MIB)
    assert error.code is ErrorCode.REQUEST_TOO_LARGE
    assert error.facts["batch"] == 2


def test_records_without_a_key_are_found_over_all_batches_that_decode() -> None:
    keyed = encode([NewRecord(NOW_MS, b"", b"v")] * 3)
    data = keyed + GOOD + undecodable_batch(5) + encode([NewRecord(NOW_MS, None, b"v")], Compression.LZ4)
    assert list(keyless_records(data, DecodeBudget(MIB))) == [4, 10]
    assert check_times(keyed, DecodeBudget(MIB)).have_keys
    assert not check_times(keyed + GOOD + keyed, DecodeBudget(MIB)).have_keys
    assert list(keyless_records(bomb(2 * MIB) + GOOD, DecodeBudget(MIB))) == [0]  # the budget ends behind the first


def test_a_record_without_a_key_is_refused_where_keys_are_needed() -> None:
    with pytest.raises(PenstockError, match=r"batch 1 at byte .*: record 1 has no key") as caught:
        check_records(encode([NewRecord(NOW_MS, b"k", None)]) + GOOD, DecodeBudget(MIB), needs_keys=True)
    assert (caught.value.code, caught.value.facts) == (ErrorCode.INVALID_RECORD, {"batch": 1})


def spend(budget: DecodeBudget, batch: bytes) -> int:
    return len(list(budget.decode(batch, parse_header(batch))))


def test_a_budget_is_spent_by_what_batches_hold_without_compression() -> None:
    budget = DecodeBudget(5 * MIB)
    for is_spent_before in (False, False, True):
        assert budget.is_spent is is_spent_before
        assert spend(budget, bomb(3 * MIB)) == 1


def test_a_batch_that_does_not_decompress_counts_as_what_it_may_have_taken() -> None:
    budget = DecodeBudget(64 * MIB)
    with pytest.raises(PenstockError, match="expands beyond"):
        spend(budget, bomb(65 * MIB))
    assert budget.is_spent


def test_a_small_batch_that_cannot_be_decoded_counts_little() -> None:
    budget = DecodeBudget(64 * MIB)
    for _ in range(1_000):
        with pytest.raises(PenstockError):
            spend(budget, undecodable_batch())
    assert not budget.is_spent


def test_a_reader_that_stops_early_has_spent_the_batch() -> None:
    budget = DecodeBudget(1)
    records = budget.decode(bomb(10), parse_header(bomb(10)))
    next(records)
    del records
    assert budget.is_spent
