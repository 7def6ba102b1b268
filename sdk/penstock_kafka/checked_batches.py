"""Checks the batches that a client has sent for one partition, and answers by the codes that Kafka's clients know.

A client repeats what fails its CRC-32C, for it holds the right bytes. All else that is wrong stays wrong: a repeat
would hold up the records behind it until the client gives up.
"""

from itertools import islice
from typing import NamedTuple

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_RECORD_ERRORS_MAX, READ_DECODED_BYTES_MAX
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.records.record_batch import BatchesSummary, BytesLike, crc_is_valid, validate, walk
from penstock_core.records.record_check import check_times, keyless_records
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.topic_directory import TopicDirectory


class CheckedBatches(NamedTuple):
    """What an append needs to know of batches. `have_keys`: no record lacks its key, as compacted topics want it."""

    summary: BatchesSummary
    have_keys: bool


def check_crc(data: BytesLike) -> None:
    """Raises RequestRefused for batches that were changed on their way, CORRUPT_BATCH or UNSUPPORTED_FORMAT."""
    for position, header in walk(data):
        if not crc_is_valid(data, position, header):
            raise RequestRefused(
                KafkaError.corrupt_message, f"the batch at byte {position} fails its CRC-32C: send it again"
            )


def checked(data: BytesLike) -> CheckedBatches:
    """The summary of batches. It decodes them for timestamps and keys, within a budget.

    Raises as `validate` and `check_times`.
    """
    return CheckedBatches(validate(data), check_times(data, DecodeBudget(READ_DECODED_BYTES_MAX)))


async def keyless_error(topics: TopicDirectory, name: str, data: BytesLike) -> PenstockError | None:
    """The refusal of batches with records without a key, if the topic is compacted; it may ask for the topic.

    An error that another try may heal is returned, too. After any other one the append tells what is wrong.
    `facts["keyless"]` has the places of the records, the first ones if there are many.
    """
    try:
        topic = await topics.topic(name)
    except PenstockError as error:
        return error if error.code.is_retriable else None
    if not topic.is_compacted:
        return None
    found = islice(keyless_records(data, DecodeBudget(READ_DECODED_BYTES_MAX)), KAFKA_RECORD_ERRORS_MAX)
    return PenstockError(
        ErrorCode.INVALID_RECORD,
        f"topic {name!r} is compacted, and takes no records without a key",
        keyless=[*found],
    )
