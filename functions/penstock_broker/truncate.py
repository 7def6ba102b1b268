"""Truncate: raise log start offsets, so that what lies below is gone for every reader."""

from collections.abc import Mapping, Sequence

from penstock_broker.broker import Broker
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Head


def truncate(broker: Broker, topic_name: str, before: Mapping[int, int]) -> Sequence[Head | PenstockError]:
    """One result per partition of `before` (partition -> offset), in its order. One conditional update each.

    An offset below the log start changes nothing; one above the high watermark is OFFSET_OUT_OF_RANGE.
    """
    broker.directory.look_up(topic_name)

    def raise_one(item: tuple[int, int]) -> Head:
        partition, offset = item
        _, key = broker.directory.find_partition(topic_name, partition)
        return broker.log.raise_log_start(key, Offset(offset))

    return broker.parallel.map(raise_one, list(before.items()))
