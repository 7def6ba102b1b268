"""Produce inside a transaction: batches wait in memory until the transaction ends, or are staged.

The answer has no offset, as the records have none before the commit. It promises nothing beyond that commit.
"""

from contextlib import AsyncExitStack

from penstock_core.errors import PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.dispatch.names import service_name
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, record_errors
from penstock_kafka.service.service import keyless_error
from penstock_kafka.transactions.epochs.producers import Producers, open_producers
from penstock_kafka.transactions.epochs.sequences import plain_batch
from penstock_kafka.transactions.epochs.transactional_producer import TransactionalProducer
from penstock_kafka.transactions.refusals import code_for, refuse_if_gone, unknown_epoch

_UNKNOWN = -1


class TransactionalProduce:
    """Answers requests of Produce that name a transactional id."""

    def __init__(self, context: Context) -> None:
        self._topics = context.service.topics
        self._producers: Producers = open_producers(context)

    async def answer(self, call: Call) -> Answer:
        """The outcome by partition. Requests of one producer take their turn before the first await."""
        request = call.request
        async with AsyncExitStack() as turn:
            producer = self._producers.named(service_name(str(request.transactional_id)))
            if producer is not None:
                await turn.enter_async_context(producer.lock)
            topics = [
                {
                    "name": topic.name,
                    "partition_responses": [
                        await self._answered(call, producer, str(topic.name), each) for each in topic.partition_data
                    ],
                }
                for topic in request.topic_data
            ]
        return {"responses": topics}

    async def _answered(
        self, call: Call, producer: TransactionalProducer | None, topic: str, wanted: Request
    ) -> Answer:
        told = {"index": wanted.index, "base_offset": _UNKNOWN, "log_start_offset": _UNKNOWN}
        try:
            await self._take(call, producer, topic, wanted)
        except (PenstockError, RequestRefused) as error:
            return {
                **told,
                "error_code": code_for(error, call),
                "record_errors": record_errors(error),
                "error_message": error_message(error),
            }
        return {**told, "error_code": KafkaError.none}

    async def _take(self, call: Call, producer: TransactionalProducer | None, topic: str, wanted: Request) -> None:
        refuse_if_gone(call)
        if call.request.acks != -1:
            raise RequestRefused(KafkaError.invalid_required_acks, "a transaction demands acks=all")
        batch = plain_batch(wanted.records or b"")
        name = service_name(str(call.request.transactional_id))
        if self._producers.find(name, (batch.producer_id, batch.producer_epoch)) is not producer or producer is None:
            raise unknown_epoch(name)  # it began while this request waited for its turn
        refusal = None if batch.have_keys else await keyless_error(self._topics, topic, batch.data)
        if refusal is not None:
            raise refusal
        await producer.produce((topic, int(wanted.index)), batch)
