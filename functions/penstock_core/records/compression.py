"""Compress and decompress the records of a batch, in the framings that Kafka's clients use.

gzip, zstd and lz4 are their own frames, lz4 with independent blocks, as KIP-57 asks. Snappy is cut in blocks as
snappy-java does: `SNAPPY_MAGIC`, two i32 of version, then per block its i32 length and raw snappy. Raw snappy without
these is read too. Levels are the defaults of Kafka's Java client. Decompression writes into a buffer that the caller
has sized. So no input takes more memory than that.
"""

from collections.abc import Iterator

import cramjam

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.record_batch import BytesLike, Compression

SNAPPY_MAGIC = b"\x82SNAPPY\x00"

_SNAPPY_HEADER = SNAPPY_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_SNAPPY_BLOCK_BYTES = 32 * 1024
_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3


def compress(payload: BytesLike, compression: Compression) -> bytes:
    """The payload as it follows a batch's header. It may be longer than before."""
    match compression:
        case Compression.NONE:
            return bytes(payload)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(payload, level=_GZIP_LEVEL))
        case Compression.SNAPPY:
            return b"".join((_SNAPPY_HEADER, *_snappy_blocks(memoryview(payload))))
        case Compression.LZ4:
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(bytes(payload))  # takes bytes only
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(payload, level=_ZSTD_LEVEL))


def decompress_into(payload: memoryview, compression: Compression, output: memoryview) -> int:
    """Expand the payload into `output`, and return the number of bytes written.

    Raises UNSUPPORTED_FORMAT if `output` cannot hold it, CORRUPT_BATCH if it does not decompress.
    """
    try:
        match compression:
            case Compression.NONE:
                raise ValueError("a payload without compression is read where it is")
            case Compression.GZIP:
                return int(cramjam.gzip.decompress_into(payload, output))
            case Compression.SNAPPY:
                return _decompress_snappy(payload, output)
            case Compression.LZ4:
                return int(cramjam.lz4.decompress_into(payload, output))
            case Compression.ZSTD:
                return int(cramjam.zstd.decompress_into(payload, output))
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):  # cramjam says so when the output is full
            raise _too_large(compression, len(output)) from error
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"its {len(payload)} bytes do not decompress as {compression.name.lower()} ({error!s:.100})",
        ) from error


def _snappy_blocks(payload: memoryview) -> Iterator[bytes]:
    for start in range(0, len(payload), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _SNAPPY_BLOCK_BYTES]))
        yield len(block).to_bytes(4, "big")
        yield block


def _decompress_snappy(payload: memoryview, output: memoryview) -> int:
    if payload[: len(SNAPPY_MAGIC)] != SNAPPY_MAGIC:
        return _decompress_snappy_block(payload, output, 0)
    position, written = len(_SNAPPY_HEADER), 0
    while position < len(payload):
        block_at = position + 4
        position = block_at + int.from_bytes(payload[position:block_at], "big")
        written = _decompress_snappy_block(payload[block_at:position], output, written)
    return written


def _decompress_snappy_block(block: memoryview, output: memoryview, start: int) -> int:
    end = start + int(cramjam.snappy.decompress_raw_len(block))
    if end > len(output):
        raise _too_large(Compression.SNAPPY, len(output))
    return start + int(cramjam.snappy.decompress_raw_into(block, output[start:end]))


def _too_large(compression: Compression, limit_bytes: int) -> PenstockError:
    return PenstockError(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"its {compression.name.lower()} payload expands beyond the {limit_bytes} bytes that a batch may decompress to",
    )
