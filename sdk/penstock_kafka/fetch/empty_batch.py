"""A batch without records, for offsets that compaction has emptied: with it a client's position moves past them.

Kafka's own compaction leaves such batches. The layout is that of penstock_core/records/record_batch.py.
"""

import struct

from crc32c import crc32c

_PREFIX = struct.Struct(">qiib")  # base offset, length, partition leader epoch, magic
_CRC = struct.Struct(">I")
_COVERED = struct.Struct(">hiqqqhii")  # from the attributes to the record count
_LENGTH = 49  # of all that follows the length field
_SPAN_MAX = 2**31 - 1  # of the offsets of one batch


def empty_batch(offset: int, next_offset: int) -> bytes:
    """A batch that covers `[offset, next_offset)`, or as much of it as a batch may cover."""
    span = min(next_offset - offset, _SPAN_MAX)
    covered = _COVERED.pack(0, span - 1, -1, -1, -1, -1, -1, 0)
    return _PREFIX.pack(offset, _LENGTH, 0, 2) + _CRC.pack(crc32c(covered)) + covered
