"""Each code of Penstock and the code of Kafka that tells a client to do the same.

A room whose API has a fitter code says so where it answers: `kafka_error(error, {ErrorCode.INVALID_NAME: …})`.
Source of Kafka's codes: https://kafka.apache.org/protocol#protocol_error_codes
"""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode as KafkaError

from penstock_core.errors import ErrorCode, PenstockError

__all__ = ["KAFKA_ERRORS", "KafkaError", "RequestRefused", "error_message", "kafka_error", "record_errors"]

_MESSAGE_LENGTH_MAX = 1_000
_KEYLESS = "a record of a compacted topic needs a key"

KAFKA_ERRORS: Mapping[ErrorCode, KafkaError] = {
    ErrorCode.INVALID_REQUEST: KafkaError.invalid_request,
    ErrorCode.INVALID_NAME: KafkaError.invalid_topic_exception,
    ErrorCode.INVALID_CONFIG: KafkaError.invalid_config,
    ErrorCode.INVALID_FILTER: KafkaError.invalid_request,
    ErrorCode.CORRUPT_BATCH: KafkaError.invalid_record,  # the gateway itself has compared the CRC-32C
    ErrorCode.UNSUPPORTED_FORMAT: KafkaError.unsupported_for_message_format,
    ErrorCode.INVALID_TIMESTAMP: KafkaError.invalid_timestamp,
    ErrorCode.INVALID_RECORD: KafkaError.invalid_record,
    ErrorCode.ACCESS_DENIED: KafkaError.cluster_authorization_failed,
    ErrorCode.NOT_AUTHORIZED: KafkaError.topic_authorization_failed,
    ErrorCode.UNKNOWN_TOPIC: KafkaError.unknown_topic_or_partition,
    ErrorCode.UNKNOWN_TOPIC_ID: KafkaError.unknown_topic_id,
    ErrorCode.UNKNOWN_PARTITION: KafkaError.unknown_topic_or_partition,
    ErrorCode.UNKNOWN_ZONE: KafkaError.resource_not_found,
    ErrorCode.UNKNOWN_ROUTE: KafkaError.unsupported_version,
    ErrorCode.UNKNOWN_GROUP: KafkaError.group_id_not_found,
    ErrorCode.UNKNOWN_SHARE_GROUP: KafkaError.group_id_not_found,
    ErrorCode.UNKNOWN_SUBSCRIPTION: KafkaError.resource_not_found,
    ErrorCode.UNKNOWN_MEMBER: KafkaError.unknown_member_id,
    ErrorCode.UNKNOWN_PRODUCER: KafkaError.invalid_producer_id_mapping,
    ErrorCode.UNKNOWN_SCHEDULE: KafkaError.resource_not_found,
    ErrorCode.UNKNOWN_TIMER: KafkaError.resource_not_found,
    ErrorCode.UNKNOWN_QUOTA: KafkaError.resource_not_found,
    ErrorCode.TOPIC_EXISTS: KafkaError.topic_already_exists,
    ErrorCode.TOO_MANY_TOPICS: KafkaError.policy_violation,
    ErrorCode.TOO_MANY_SCHEDULES: KafkaError.policy_violation,
    ErrorCode.TOO_MANY_SUBSCRIPTIONS: KafkaError.policy_violation,
    ErrorCode.TOO_MANY_QUOTAS: KafkaError.policy_violation,
    ErrorCode.QUOTA_EXCEEDED: KafkaError.policy_violation,
    ErrorCode.TOO_MANY_ACLS: KafkaError.policy_violation,
    ErrorCode.TIMER_EXISTS: KafkaError.invalid_request,
    ErrorCode.TIMER_SETTLED: KafkaError.invalid_request,
    ErrorCode.TOO_MANY_TIMERS: KafkaError.policy_violation,
    ErrorCode.CONCURRENT_UPDATE: KafkaError.not_controller,  # an admin client looks again, then tries again
    ErrorCode.ZONE_STATE_CONFLICT: KafkaError.invalid_request,
    ErrorCode.OUT_OF_ORDER_SEQUENCE: KafkaError.out_of_order_sequence_number,
    ErrorCode.DUPLICATE_SEQUENCE: KafkaError.duplicate_sequence_number,
    ErrorCode.PARTITION_CLOSED: KafkaError.policy_violation,
    ErrorCode.MIRRORED: KafkaError.policy_violation,
    ErrorCode.MIRROR_ENDED: KafkaError.policy_violation,
    ErrorCode.MOVED: KafkaError.policy_violation,
    ErrorCode.PRODUCER_FENCED: KafkaError.producer_fenced,
    ErrorCode.LEASE_FENCED: KafkaError.illegal_generation,
    ErrorCode.MEMBER_FENCED: KafkaError.fenced_instance_id,
    ErrorCode.STALE_HEARTBEAT: KafkaError.stale_member_epoch,
    ErrorCode.LOCK_LOST: KafkaError.invalid_record_state,
    ErrorCode.LEASE_HELD: KafkaError.unknown_member_id,  # as Kafka answers a commit without a member
    ErrorCode.OFFSET_BEHIND: KafkaError.invalid_request,
    ErrorCode.GROUP_NOT_EMPTY: KafkaError.non_empty_group,
    ErrorCode.GROUP_FULL: KafkaError.group_max_size_reached,
    ErrorCode.TRANSACTION_EXPIRED: KafkaError.transaction_abortable,
    ErrorCode.TRANSACTION_REFUSED: KafkaError.transaction_abortable,
    ErrorCode.STORAGE_REFUSED: KafkaError.policy_violation,
    ErrorCode.RECORD_TOO_LARGE: KafkaError.message_too_large,
    ErrorCode.RESPONSE_TOO_LARGE: KafkaError.message_too_large,
    ErrorCode.REQUEST_TOO_LARGE: KafkaError.record_list_too_large,
    ErrorCode.TRANSACTION_TOO_LARGE: KafkaError.transaction_abortable,
    ErrorCode.OFFSET_OUT_OF_RANGE: KafkaError.offset_out_of_range,
    ErrorCode.THROTTLED: KafkaError.throttling_quota_exceeded,
    ErrorCode.INTERNAL: KafkaError.kafka_storage_error,  # as the next ones: clients try again
    ErrorCode.CORRUPT_SEGMENT: KafkaError.kafka_storage_error,
    ErrorCode.NOT_ENOUGH_ZONES: KafkaError.not_enough_replicas,
    ErrorCode.STORAGE_UNAVAILABLE: KafkaError.kafka_storage_error,
    ErrorCode.IDENTITY_UNAVAILABLE: KafkaError.kafka_storage_error,
}

_BY_RESOURCE = {
    "topic": KafkaError.topic_authorization_failed,
    "group": KafkaError.group_authorization_failed,
    "share_group": KafkaError.group_authorization_failed,
    "transactional_id": KafkaError.transactional_id_authorization_failed,
}


class RequestRefused(Exception):  # noqa: N818 - it is an answer, and no error of the gateway
    """The gateway refuses a request, or a part of it, by a code of Kafka. The message is for the client's log."""

    def __init__(self, code: KafkaError, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def kafka_error(
    error: PenstockError | RequestRefused, fitter: Mapping[ErrorCode, KafkaError] | None = None
) -> KafkaError:
    """The code that answers this error. `fitter` goes before the table."""
    if isinstance(error, RequestRefused):
        return error.code
    if fitter is not None and error.code in fitter:
        return fitter[error.code]
    if error.code is ErrorCode.NOT_AUTHORIZED:
        kind = str(error.facts.get("resource", "")).partition(":")[0]
        return _BY_RESOURCE.get(kind, KafkaError.cluster_authorization_failed)
    return KAFKA_ERRORS[error.code]


def error_message(error: PenstockError | RequestRefused) -> str:
    """The message for a client, with Penstock's code in front."""
    return str(error)[:_MESSAGE_LENGTH_MAX]


def record_errors(error: PenstockError | RequestRefused) -> list[dict[str, object]]:
    """The records that are to blame, as Produce tells them since KIP-467. Clients may send their neighbours again."""
    places = error.facts.get("keyless", ()) if isinstance(error, PenstockError) else ()
    return [{"batch_index": place, "batch_index_error_message": _KEYLESS} for place in places]
