"""Undecodable batches: their CRC-32C is right, and yet their records cannot be read. No other copy will be better.

The service takes such a batch, because it does not look behind the header (`validate_records` makes it look). A reader
must be able to go on behind it, so its error tells the offsets: `facts["base_offset"]` and `facts["next_offset"]`.
An error without `next_offset` is another one: the bytes were changed on their way, and another read may heal it.
"""

from collections.abc import Callable

from penstock_core.errors import PenstockError
from penstock_core.records.record_batch import BatchHeader

# Deals with the error of an undecodable batch; a reader goes on behind the batch if this returns.
UndecodableHandler = Callable[[PenstockError], object]


def undecodable(error: PenstockError, header: BatchHeader) -> PenstockError:
    """The error of a batch whose header is true, with the batch's offsets and the way out."""
    return PenstockError(
        error.code,
        f"the batch with offsets [{header.base_offset}, {header.next_offset}) cannot be decoded: {error.message};"
        f" seek to {header.next_offset} to skip it",
        base_offset=header.base_offset,
        next_offset=header.next_offset,
    )


def in_partition(error: PenstockError, topic: str, partition: int) -> PenstockError:
    """The same error of a batch, with the partition that holds it."""
    return PenstockError(
        error.code,
        f"partition {partition} of topic {topic!r}: {error.message}",
        **{"topic": topic, "partition": partition, **error.facts},
    )


def is_undecodable(error: PenstockError) -> bool:
    """The error names a batch that a reader may skip, and the offset to go on at."""
    return "next_offset" in error.facts


def raise_undecodable(error: PenstockError) -> None:
    """The handler of readers that skip nothing."""
    raise error
