"""Produce: checks each partition's batches, and hands them to the sender as they are."""

import asyncio
from collections.abc import Mapping

from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_topic_name
from penstock_core.limits import BATCH_BYTES_MAX
from penstock_core.records.producer_state import SEQUENCE_MAX
from penstock_core.records.record_batch import parse_header
from penstock_kafka.checked_batches import check_crc, checked
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error, record_errors
from penstock_kafka.produce.lanes import NO_PRODUCER, LaneKey, Outcome, PendingBatch
from penstock_kafka.produce.sender import Sender
from penstock_kafka.transactions.transactional_produce import TransactionalProduce

_ACKS = {0: "one", 1: "one", -1: "quorum"}
_TIMEOUT_MS_MIN = 1_000
_TIMEOUT_MS_MAX = 60_000
_UNKNOWN = -1
_FITTER: Mapping[ErrorCode, KafkaError] = {
    ErrorCode.PRODUCER_FENCED: KafkaError.invalid_producer_epoch,
    ErrorCode.THROTTLED: KafkaError.request_timed_out,  # the gateway has waited as long as the client wanted
}


class Produce:
    """Appends batches. It answers when the service has stored them; with acks=0 it answers nothing."""

    def __init__(self, context: Context, sender: Sender) -> None:
        self._topics = context.service.topics
        self._sender = sender
        self._in_transactions = TransactionalProduce(context)

    async def answer(self, call: Call) -> Answer | None:
        """The offsets, or the errors, by partition. Batches are in their lanes before the first await."""
        request = call.request
        if request.transactional_id is not None:
            return await self._in_transactions.answer(call)
        timeout_ms = request.timeout.total_seconds() * 1_000
        deadline_ms = monotonic_ms() + int(min(max(timeout_ms, _TIMEOUT_MS_MIN), _TIMEOUT_MS_MAX))
        found = [
            (topic.name, [self._begin(request, topic.name, each, deadline_ms) for each in topic.partition_data])
            for topic in request.topic_data
        ]
        topics = [
            {"name": name, "partition_responses": [await self._end(name, each) for each in begun]}
            for name, begun in found
        ]
        return None if request.acks == 0 else {"responses": topics}

    def _begin(self, request: Request, topic: str, wanted: Request, deadline_ms: int) -> "_Begun":
        try:
            batch = _pending(request, topic, wanted, deadline_ms)
        except (PenstockError, RequestRefused) as error:
            return wanted.index, error
        self._sender.put(batch)
        return wanted.index, batch.outcome

    async def _end(self, topic: str, begun: "_Begun") -> Answer:
        number, state = begun
        outcome = await state if isinstance(state, asyncio.Future) else state
        if isinstance(outcome, int):
            return {
                "index": number,
                "error_code": KafkaError.none,
                "base_offset": outcome,
                "log_start_offset": _UNKNOWN,
            }
        if isinstance(outcome, PenstockError) and outcome.code is ErrorCode.UNKNOWN_TOPIC:
            self._topics.forget(topic)
        return {
            "index": number,
            "error_code": produce_error(outcome),
            "base_offset": _UNKNOWN,
            "log_start_offset": _UNKNOWN,
            "record_errors": record_errors(outcome),
            "error_message": error_message(outcome),
        }


_Begun = tuple[int, "asyncio.Future[Outcome] | PenstockError | RequestRefused"]


def _pending(request: Request, topic: str, wanted: Request, deadline_ms: int) -> PendingBatch:
    acks = _ACKS.get(request.acks)
    if acks is None:
        raise RequestRefused(KafkaError.invalid_required_acks, f"acks={request.acks}: use 0, 1 or -1")
    parse_topic_name(topic)
    if wanted.index < 0:
        raise RequestRefused(KafkaError.unknown_topic_or_partition, f"partition {wanted.index} cannot be")
    data: bytes = wanted.records or b""
    if len(data) > BATCH_BYTES_MAX:
        raise RequestRefused(
            KafkaError.message_too_large, f"{len(data):,} bytes for one partition: {BATCH_BYTES_MAX:,} at most"
        )
    if data:
        _check_header(data)
    check_crc(data)
    summary, have_keys, may_expire = checked(data)
    producer_id = NO_PRODUCER if summary.sequence is None else summary.sequence.producer_id
    return PendingBatch(
        key=LaneKey(topic, wanted.index, producer_id),
        data=data,
        summary=summary,
        acks=acks,
        deadline_ms=deadline_ms,
        outcome=asyncio.get_running_loop().create_future(),
        have_keys=have_keys,
        may_expire=may_expire,
    )


def _check_header(data: bytes) -> None:
    """Refuses what Kafka has and Penstock has not, by the code that makes clients do the right thing."""
    header = parse_header(data)
    if header.producer_id >= 0 and header.base_sequence + header.record_count - 1 > SEQUENCE_MAX:
        # Kafka goes on at sequence 0. After this code a producer takes another epoch, and begins at 0 in that.
        raise RequestRefused(
            KafkaError.unknown_producer_id, f"sequences end at {SEQUENCE_MAX}: take another epoch, and begin at 0"
        )
    if header.is_transactional:
        raise RequestRefused(KafkaError.invalid_txn_state, "the batch is of a transaction that was not begun here")


def produce_error(error: PenstockError | RequestRefused) -> KafkaError:
    """The code that answers this error in Produce without a transaction."""
    if isinstance(error, PenstockError) and error.maybe_applied and error.code.is_retriable:
        return KafkaError.request_timed_out
    return kafka_error(error, _FITTER)
