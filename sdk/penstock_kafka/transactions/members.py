"""AddPartitionsToTxn: opens a transaction, and names the partitions that it writes to.

AddOffsetsToTxn: opens a transaction, and names a group whose offsets it commits.
"""

from penstock_core.errors import PenstockError
from penstock_core.ids import parse_group_name
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.topic_directory import TopicDirectory
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.epochs.sequences import Place
from penstock_kafka.transactions.refusals import code_for, refuse_if_gone


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
