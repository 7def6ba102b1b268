import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import stamp, validate
from penstock_core.records.undecodable import in_partition, is_undecodable
from tests.support.poison import bomb, undecodable_batch


def error_of(batch: bytes, base_offset: int = 0) -> PenstockError:
    data = bytearray(batch)
    stamp(data, base_offset)
    with pytest.raises(PenstockError) as caught:
        list(decode(data))
    return caught.value


def test_the_service_takes_a_batch_that_no_reader_can_decode() -> None:
    assert validate(undecodable_batch(5)).record_count == 5


@pytest.mark.parametrize(
    ("batch", "code", "span"),
    [
        (undecodable_batch(5), ErrorCode.CORRUPT_BATCH, 5),
        (undecodable_batch(1_000_000), ErrorCode.CORRUPT_BATCH, 1_000_000),
        (bomb(BATCH_DECODED_BYTES_MAX), ErrorCode.UNSUPPORTED_FORMAT, 1),
    ],
)
def test_decode_names_the_offsets_when_the_crc_is_right(batch: bytes, code: ErrorCode, span: int) -> None:
    error = error_of(batch, 1_000)

    assert error.code is code
    assert error.facts == {"base_offset": 1_000, "next_offset": 1_000 + span}
    assert f"seek to {1_000 + span} to skip it" in error.message
    assert "send" not in error.message  # the reader is told, who sends nothing
    assert is_undecodable(error)


def test_decode_names_no_next_offset_when_the_bytes_were_changed_on_their_way() -> None:
    batch = bytearray(encode([NewRecord(1, None, b"value")]))
    batch[-3] ^= 1

    error = error_of(bytes(batch))

    assert not is_undecodable(error)
    assert "read it again" in error.message


def test_an_error_in_a_partition_keeps_its_facts_and_a_bounded_message() -> None:
    error = in_partition(error_of(undecodable_batch(), 7), "orders", 3)

    assert error.facts == {"topic": "orders", "partition": 3, "base_offset": 7, "next_offset": 12}
    assert error.message.startswith("partition 3 of topic 'orders': the batch with offsets [7, 12) cannot be decoded")
    assert len(error.message) < 500
