"""Refuses records without a key that a client has sent to a compacted topic."""

from itertools import islice

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_RECORD_ERRORS_MAX, READ_DECODED_BYTES_MAX
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.records.record_batch import BytesLike
from penstock_core.records.record_check import keyless_records
from penstock_kafka.service.topic_directory import TopicDirectory


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
