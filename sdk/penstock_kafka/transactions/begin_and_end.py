"""InitProducerId: ids of producers that number their records, and epochs of transactional ones.

An id of a plain producer is 63 random bits, as the SDK's producers draw them: no state is kept of it before its first
batch. After an error it asks for another epoch of its id, and gets the next number. The service keeps the epochs of
transactional ids: each begin fences the instance that had the last one.

EndTxn: commits the transaction, or gives it up.

AddPartitionsToTxn: opens a transaction, and names the partitions that it writes to.

AddOffsetsToTxn: opens a transaction, and names a group whose offsets it commits.
"""

import logging

from penstock.system import choose
from penstock_core.errors import PenstockError
from penstock_core.ids import parse_group_name, parse_transactional_id
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, TRANSACTION_MS_MAX
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.service import TopicDirectory
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.epochs.sequences import Place
from penstock_kafka.transactions.epochs.transactional_producer import TransactionalProducer
from penstock_kafka.transactions.refusals import code_for, refuse_if_gone

_IDS = 2**63
_EPOCH_MAX = 2**15 - 2  # Kafka's epochs have 15 bits
_NONE = -1
_LOG = logging.getLogger("penstock.kafka.transactions")


class InitProducerId:
    """Gives ids and epochs."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    async def answer(self, call: Call) -> Answer:
        """An id and an epoch."""
        request = call.request
        producer_id = getattr(request, "producer_id", _NONE)
        epoch = getattr(request, "producer_epoch", _NONE)
        if request.transactional_id is None:
            if producer_id >= 0 and 0 <= epoch < _EPOCH_MAX:
                return {"error_code": KafkaError.none, "producer_id": producer_id, "producer_epoch": epoch + 1}
            return {"error_code": KafkaError.none, "producer_id": choose(_IDS), "producer_epoch": 0}
        last = (int(producer_id), int(epoch)) if producer_id >= 0 and epoch >= 0 else None
        try:
            begun = (await self._begin(call, last)).names
        except (PenstockError, RequestRefused) as error:
            return {"error_code": code_for(error, call), "producer_id": _NONE, "producer_epoch": _NONE}
        return {"error_code": KafkaError.none, "producer_id": begun.producer_id, "producer_epoch": begun.epoch}

    async def _begin(self, call: Call, last: tuple[int, int] | None) -> TransactionalProducer:
        request = call.request
        timeout_ms = int(request.transaction_timeout.total_seconds() * 1_000)
        if not 0 < timeout_ms <= TRANSACTION_MS_MAX:
            raise RequestRefused(
                KafkaError.invalid_transaction_timeout,
                f"transaction.timeout.ms={timeout_ms}: 1 to {TRANSACTION_MS_MAX:,}",
            )
        refuse_if_gone(call)
        name = parse_transactional_id(str(request.transactional_id))
        return await self._producers.begin(name, timeout_ms, last)


class EndTxn:
    """Answers EndTxn."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    async def answer(self, call: Call) -> Answer:
        """The outcome. The answer has no place for a message, so a refusal is logged."""
        request = call.request
        name, epoch = str(request.transactional_id), (int(request.producer_id), int(request.producer_epoch))
        try:
            refuse_if_gone(call)
            await self._producers.end(name, epoch, is_commit=bool(request.committed))
        except (PenstockError, RequestRefused) as error:
            code = code_for(error, call)
            verb = "commit" if request.committed else "abort"
            _LOG.warning("transactional id %s: %s is answered %s: %s", name, verb, code.name, error)
            return {"error_code": code}
        return {"error_code": KafkaError.none}


class AddPartitionsToTxn:
    """Answers versions 0 to 3, which clients send. Later ones are for brokers."""

    def __init__(self, producers: Producers, topics: TopicDirectory) -> None:
        self._producers = producers
        self._topics = topics

    async def answer(self, call: Call) -> Answer:
        """The same code for all partitions. If one is unknown, the others were not tried."""
        request = call.request
        wanted: list[Place] = [
            (str(topic.name), int(number)) for topic in request.v3_and_below_topics for number in topic.partitions
        ]
        codes = dict.fromkeys(wanted, KafkaError.none)
        try:
            refuse_if_gone(call)
            epoch = (int(request.v3_and_below_producer_id), int(request.v3_and_below_producer_epoch))
            producer = self._producers.find(str(request.v3_and_below_transactional_id), epoch)
            async with producer.lock:
                found, unknown = await self._look_up(wanted, call)
                if unknown:
                    codes = dict.fromkeys(wanted, KafkaError.operation_not_attempted) | unknown
                else:
                    await producer.add_places(found)
        except (PenstockError, RequestRefused) as error:
            codes = dict.fromkeys(wanted, code_for(error, call))
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": number, "partition_error_code": codes[str(topic.name), int(number)]}
                        for number in topic.partitions
                    ],
                }
                for topic in request.v3_and_below_topics
            ]
        }

    async def _look_up(self, wanted: list[Place], call: Call) -> tuple[dict[Place, int], dict[Place, KafkaError]]:
        """The bytes that a batch of each partition may have, and the codes of unknown partitions."""
        found: dict[Place, int] = {}
        unknown: dict[Place, KafkaError] = {}
        for name, number in wanted:
            try:
                topic = await self._topics.topic(name)
            except PenstockError as error:
                unknown[name, number] = code_for(error, call)
                continue
            if 0 <= number < topic.partitions:
                found[name, number] = int(topic.config.get("max_batch_bytes", BATCH_BYTES_DEFAULT_MAX))
            else:
                self._topics.forget(name)
                unknown[name, number] = KafkaError.unknown_topic_or_partition
        return found, unknown


class AddOffsetsToTxn:
    """Answers AddOffsetsToTxn."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    async def answer(self, call: Call) -> Answer:
        """The outcome."""
        request = call.request
        epoch = (int(request.producer_id), int(request.producer_epoch))
        try:
            refuse_if_gone(call)
            group = parse_group_name(str(request.group_id))
            await self._producers.find(str(request.transactional_id), epoch).add_group(group)
        except (PenstockError, RequestRefused) as error:
            return {"error_code": code_for(error, call)}
        return {"error_code": KafkaError.none}
