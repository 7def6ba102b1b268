"""Count what goes into topics and out of them, where a stage has metrics of topics."""

from collections.abc import Mapping, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.ref import Ref, stored_bytes
from penstock_core.metrics.lag_memory import TopicTraffic
from penstock_core.outcomes import Outcome
from penstock_core.records.record_batch import BytesLike, walk
from penstock_service.instance.instance import Instance


def count_received(instance: Instance, topic: str, data: BytesLike, outcome: Outcome[object]) -> None:
    """Counts the batches that a producer has sent to a partition, or the error that it gets.

    Delayed records count now, and not when they are delivered.
    """
    instance.traffic.add_error(topic, outcome)
    if instance.traffic.is_on and not isinstance(outcome, PenstockError):
        counts = TopicTraffic(records_received=_records_in(data), bytes_received=len(data))
        instance.traffic.add(topic, counts)


def count_committed(
    instance: Instance, refs: Mapping[PartitionKey, Sequence[Ref]], names: Mapping[PartitionKey, str]
) -> None:
    """Counts the records of a transaction. Its delayed records do not count."""
    if instance.traffic.is_on:
        for key, each in refs.items():
            counts = TopicTraffic(
                records_received=sum(ref.record_count for ref in each), bytes_received=stored_bytes(each)
            )
            instance.traffic.add(names[key], counts)


def count_sent(instance: Instance, topic: str, data: BytesLike) -> None:
    """Counts the batches that a reader gets of a partition."""
    if instance.traffic.is_on and data:
        instance.traffic.add(topic, TopicTraffic(records_sent=_records_in(data), bytes_sent=len(data)))


def _records_in(data: BytesLike) -> int:
    return sum(header.record_count for _, header in walk(data))
