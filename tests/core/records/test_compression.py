import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.records.compression import SNAPPY_MAGIC, compress, decompress_into
from penstock_core.records.record_batch import Compression
from tests.support.refusals import refused

COMPRESSED = [each for each in Compression if each is not Compression.NONE]


@pytest.mark.parametrize("compression", COMPRESSED)
@given(payload=st.binary(max_size=200), repeat=st.integers(1, 1_000))
def test_payload_survives_a_round_trip(compression: Compression, payload: bytes, repeat: int) -> None:
    payload = payload * repeat
    output = memoryview(bytearray(len(payload) + 1))
    length = decompress_into(memoryview(compress(payload, compression)), compression, output)
    assert bytes(output[:length]) == payload


@pytest.mark.parametrize("compression", COMPRESSED)
def test_payload_is_refused_when_the_output_cannot_hold_it(compression: Compression) -> None:
    data = memoryview(compress(bytes(100_000), compression))
    output = memoryview(bytearray(99_999))
    error = refused(ErrorCode.UNSUPPORTED_FORMAT, lambda: decompress_into(data, compression, output))
    assert "99999 bytes" in error.message


@pytest.mark.parametrize("compression", COMPRESSED)
def test_garbage_is_refused(compression: Compression) -> None:
    data = memoryview(b"\xff" * 40)
    refused(ErrorCode.CORRUPT_BATCH, lambda: decompress_into(data, compression, memoryview(bytearray(1_000))))


def test_payload_without_compression_is_left_as_it_is() -> None:
    assert compress(b"abc", Compression.NONE) == b"abc"
    with pytest.raises(ValueError, match="is read where it is"):
        decompress_into(memoryview(b"abc"), Compression.NONE, memoryview(bytearray(3)))


def test_frames_begin_as_kafka_s_clients_expect() -> None:
    magics = {
        Compression.GZIP: b"\x1f\x8b",
        Compression.SNAPPY: SNAPPY_MAGIC + bytes([0, 0, 0, 1, 0, 0, 0, 1]),
        Compression.LZ4: b"\x04\x22\x4d\x18",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    assert all(compress(b"abc", each).startswith(magic) for each, magic in magics.items())
