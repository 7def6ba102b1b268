"""Tell whether a partition that refused an append is closed still, and end an alteration that died on the way."""

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.index import partition_closed
from penstock_service.index.open_generation import open_generation
from penstock_service.index.settle_head import settle_head
from penstock_service.instance.instance import Instance


def still_closed(instance: Instance, topic_name: str, key: PartitionKey) -> PenstockError | None:
    """None if a partition that refused an append may take it now; else the error, with what its topic has.

    Its topic has opened it since, or an alteration died before it could open the head. One read of the topic, and one
    update then. While a generation is opening, it costs what `open_generation` costs, and raises as that does.
    """
    topic = open_generation(instance, topic_name)
    if topic.topic_id != key.topic_id:
        return partition_closed(key)
    if not topic.is_writable(key.partition):
        return partition_closed(key, topic.writable_partitions, topic.first_writable)
    head = settle_head(instance, topic, key.partition)
    return None if head is not None and not head.is_closed else partition_closed(key)
