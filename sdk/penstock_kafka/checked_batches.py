"""Checks the batches that a client has sent for one partition, and answers by the codes that Kafka's clients know.

A client repeats what fails its CRC-32C, for it holds the right bytes. All else that is wrong stays wrong: a repeat
would hold up the records behind it until the client gives up.
"""

from typing import NamedTuple

from penstock_core.limits import READ_DECODED_BYTES_MAX
from penstock_core.records.record_batch import BatchesSummary, BytesLike, crc_is_valid, validate, walk
from penstock_core.records.record_check import DecodeBudget, check_times
from penstock_kafka.errors import KafkaError, RequestRefused


class CheckedBatches(NamedTuple):
    """What an append needs to know of batches.

    `have_keys`: no record lacks its key, as compacted topics want it. `may_expire`: a record has the header of an
    expiry, or the batches are beyond the budget.
    """

    summary: BatchesSummary
    have_keys: bool
    may_expire: bool


def check_crc(data: BytesLike) -> None:
    """Raises RequestRefused for batches that were changed on their way, CORRUPT_BATCH or UNSUPPORTED_FORMAT."""
    for position, header in walk(data):
        if not crc_is_valid(data, position, header):
            raise RequestRefused(
                KafkaError.corrupt_message, f"the batch at byte {position} fails its CRC-32C: send it again"
            )


def checked(data: BytesLike) -> CheckedBatches:
    """The summary of batches. It decodes them for timestamps, keys and expiries, within a budget.

    Raises as `validate` and `check_times`.
    """
    return CheckedBatches(validate(data), *check_times(data, DecodeBudget(READ_DECODED_BYTES_MAX)))
