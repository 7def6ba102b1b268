"""All refs of the index, for jobs that take many runs to read it and keep a cursor between them."""

from collections.abc import Callable, Iterator

from penstock_core.ids import PartitionKey
from penstock_core.log.ref import Ref
from penstock_core.log.repair import NamedRef
from penstock_core.zones.catch_up import Cursor
from penstock_service.index.refs_of import refs_of
from penstock_service.stores import Stores


def refs_from(
    stores: Stores, cursor: Cursor, is_too_new: Callable[[Ref], bool] = lambda _: False
) -> Iterator[tuple[NamedRef, Cursor]]:
    """Every ref of the index from `cursor` on, each with the cursor behind it.

    The order is that of topic names and partitions.

    A partition ends at its first ref that `is_too_new`. One read of the topics, and per partition what `refs_of` costs,
    as the caller takes the refs. Raises what these raise.
    """
    for topic in stores.topics.list():
        for partition in topic.all_partitions():
            if (topic.name, partition) < (cursor.topic, cursor.partition):
                continue
            key = PartitionKey(topic.topic_id, partition)
            offset = cursor.offset if (topic.name, partition) == (cursor.topic, cursor.partition) else 0
            for located in refs_of(stores.log, key, offset):
                if is_too_new(located.ref):
                    break
                yield NamedRef(key=key, located=located), Cursor(topic.name, partition, located.end_offset)
