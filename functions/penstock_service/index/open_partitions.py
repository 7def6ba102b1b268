"""Open the partitions of a topic that should take records: end what an operator who died has left (docs/adr/0046)."""

from collections.abc import Callable, Collection
from typing import TypeVar

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_service.index.open_generation import open_generation
from penstock_service.index.settle_head import is_unsettled, settle_head
from penstock_service.instance.instance import Instance

Moved = TypeVar("Moved")


def open_partitions(instance: Instance, name: str) -> None:
    """Opens a generation that comes, and writable heads that are closed. The cache knows the topic then.

    One read of the topic and one of its writable heads for each 100; one update for each head that opens. While a
    generation is opening, it costs what `open_generation` costs, and raises as that does.
    """
    topic = open_generation(instance, name)
    keys = [PartitionKey(topic.topic_id, Partition(each)) for each in range(topic.first_writable, topic.writable_end)]
    for key, head in instance.stores.log.heads(keys).items():
        if is_unsettled(topic, key.partition, head):
            settle_head(instance, topic, key.partition)


def move_again_if_closed(instance: Instance, names: Collection[str], move: Callable[[], Moved]) -> Moved:
    """The result of `move`, which appends to the topics of these names by the cache.

    If a partition was closed, it opens those that take records, and lets `move` look them up and try again, once.
    Raises what `move` and `open_partitions` raise.
    """
    try:
        return move()
    except PenstockError as error:
        if error.code is not ErrorCode.PARTITION_CLOSED:
            raise
    for name in names:
        open_partitions(instance, name)
    return move()
