"""ListTransactions, DescribeTransactions and DescribeProducers: what this gateway knows of its own producers.

Transactions of another gateway are not in the answers: no gateway knows them before their commit.
"""

from datetime import timedelta

from penstock.system import wall_clock_ms
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, error_message, kafka_error
from penstock_kafka.service.service import TopicDirectory
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.epochs.sequences import Place
from penstock_kafka.transactions.epochs.transactional_producer import TransactionalProducer

_STATES = frozenset({"Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort"})
_KAFKAS_STATES = _STATES | {"PrepareAbort", "PrepareEpochFence", "Dead"}  # that a filter may name
_UNKNOWN = -1


class DescribeTransactions:
    """Answers DescribeTransactions and ListTransactions."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    async def list(self, call: Call) -> Answer:
        """The producers that pass the filters."""
        request = call.request
        states = {str(each) for each in request.state_filters}
        ids = {int(each) for each in request.producer_id_filters}
        open_ms = int(getattr(request, "duration_filter", _UNKNOWN))
        found = [
            {
                "transactional_id": each.names.transactional_id,
                "producer_id": each.names.producer_id,
                "transaction_state": each.status,
            }
            for each in self._producers.all()
            if (not states or each.status in states)
            and (not ids or each.names.producer_id in ids)
            and (open_ms < 0 or _open_ms(each) > open_ms)
        ]
        unknown = sorted(states - _KAFKAS_STATES)
        return {"error_code": KafkaError.none, "unknown_state_filters": unknown, "transaction_states": found}

    async def describe(self, call: Call) -> Answer:
        """Each producer with its open transaction."""
        return {"transaction_states": [self._described(str(each)) for each in call.request.transactional_ids]}

    def _described(self, name: str) -> Answer:
        found = self._producers.named(name)
        if found is None:
            return {
                "error_code": KafkaError.transactional_id_not_found,
                "transactional_id": name,
                "transaction_state": "",
                "transaction_start_time": _UNKNOWN,
            }
        topics: dict[str, list[int]] = {}
        for topic, number in () if found.transaction is None else found.transaction.places:
            topics.setdefault(topic, []).append(number)
        return {
            "error_code": KafkaError.none,
            "transactional_id": name,
            "transaction_state": found.status,
            "transaction_timeout": timedelta(milliseconds=found.names.timeout_ms),
            "transaction_start_time": _UNKNOWN if found.transaction is None else found.transaction.started_at_ms,
            "producer_id": found.names.producer_id,
            "producer_epoch": found.names.epoch,
            "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
        }


class DescribeProducers:
    """Answers DescribeProducers."""

    def __init__(self, producers: Producers, topics: TopicDirectory) -> None:
        self._producers = producers
        self._topics = topics

    async def answer(self, call: Call) -> Answer:
        """The producers with an open transaction in each partition."""
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        await self._partition((str(topic.name), int(number))) for number in topic.partition_indexes
                    ],
                }
                for topic in call.request.topics
            ]
        }

    async def _partition(self, place: Place) -> Answer:
        told: dict[str, object] = {"partition_index": place[1], "error_message": None, "active_producers": []}
        try:
            topic = await self._topics.topic(place[0])
        except PenstockError as error:
            return {**told, "error_code": kafka_error(error), "error_message": error_message(error)}
        if not 0 <= place[1] < topic.partitions:
            return {**told, "error_code": KafkaError.unknown_topic_or_partition}
        active = [
            {
                "producer_id": each.names.producer_id,
                "producer_epoch": each.names.epoch,
                "last_sequence": each.sequences.last(place),
                "last_timestamp": each.transaction.started_at_ms,
                "coordinator_epoch": _UNKNOWN,
                "current_txn_start_offset": _UNKNOWN,  # records get their offsets by the commit
            }
            for each in self._producers.all()
            if each.transaction is not None and place in each.transaction.places
        ]
        return {**told, "error_code": KafkaError.none, "active_producers": active}


def _open_ms(producer: TransactionalProducer) -> int:
    return _UNKNOWN if producer.transaction is None else wall_clock_ms() - producer.transaction.started_at_ms
