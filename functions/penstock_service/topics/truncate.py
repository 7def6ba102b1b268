"""Truncate: raise log start offsets. The records below are gone for every reader."""

from collections.abc import Mapping

from penstock_core.ids import Offset, parse_own_topic_name
from penstock_core.log.index import Head
from penstock_core.outcomes import Outcomes
from penstock_service.instance.instance import Instance


def truncate(instance: Instance, topic_name: str, before: Mapping[int, int]) -> Outcomes[Head]:
    """One result per partition of `before` (partition -> the first offset that stays), in its order.

    One read, and one conditional update for each partition. An offset below the log start changes nothing. An offset
    above the high watermark is OFFSET_OUT_OF_RANGE. Raises INVALID_NAME, also for a topic
    of the service, and UNKNOWN_TOPIC.
    """
    instance.topic_cache.read_through(parse_own_topic_name(topic_name))

    def raise_one(item: tuple[int, int]) -> Head:
        partition, offset = item
        _, key = instance.topic_cache.get_partition(topic_name, partition)
        return instance.stores.log.raise_log_start(key, Offset(offset))

    return instance.executor.map(raise_one, list(before.items()))
