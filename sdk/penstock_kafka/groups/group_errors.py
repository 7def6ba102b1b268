"""The codes by which the APIs of groups refuse. Clients of groups react to few codes, and stop at all others."""

from collections.abc import Mapping

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error

_FITTER: Mapping[ErrorCode, KafkaError] = {
    ErrorCode.INVALID_NAME: KafkaError.invalid_group_id,
    ErrorCode.ACCESS_DENIED: KafkaError.group_authorization_failed,
    ErrorCode.CONCURRENT_UPDATE: KafkaError.coordinator_load_in_progress,  # clients try again soon
    ErrorCode.STALE_HEARTBEAT: KafkaError.coordinator_load_in_progress,
    ErrorCode.UNKNOWN_TOPIC_ID: KafkaError.unknown_topic_or_partition,
    ErrorCode.OFFSET_BEHIND: KafkaError.illegal_generation,  # of a member that is not told yet what it holds
}


def group_error(error: PenstockError | RequestRefused) -> KafkaError:
    """The code that answers this error in an API of groups."""
    if isinstance(error, PenstockError) and error.code.is_retriable:
        return KafkaError.coordinator_not_available
    return kafka_error(error, _FITTER)
