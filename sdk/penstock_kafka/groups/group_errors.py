"""The codes by which the APIs of groups refuse. Clients of groups react to few codes, and stop at all others.

Topic ids as Kafka's clients see them.
"""

from collections.abc import Mapping

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Uuid
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error

_FITTER: Mapping[ErrorCode, KafkaError] = {
    ErrorCode.INVALID_NAME: KafkaError.invalid_group_id,
    ErrorCode.ACCESS_DENIED: KafkaError.group_authorization_failed,
    ErrorCode.CONCURRENT_UPDATE: KafkaError.coordinator_load_in_progress,  # clients try again soon
    ErrorCode.STALE_HEARTBEAT: KafkaError.coordinator_load_in_progress,
    ErrorCode.UNKNOWN_TOPIC_ID: KafkaError.unknown_topic_or_partition,
    ErrorCode.OFFSET_BEHIND: KafkaError.illegal_generation,  # of a member that is not told yet what it holds
}
_UUID_DIGITS = 32


def group_error(error: PenstockError | RequestRefused) -> KafkaError:
    """The code that answers this error in an API of groups."""
    if isinstance(error, PenstockError) and error.code.is_retriable:
        return KafkaError.coordinator_not_available
    return kafka_error(error, _FITTER)


def uuid_of_id(topic_id: str) -> Uuid:
    """Penstock's 80 bits, and zeros, as Metadata tells the topic's id."""
    return Uuid(hex=topic_id.ljust(_UUID_DIGITS, "0"))
