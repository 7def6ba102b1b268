"""Alter a topic: change its settings, or add partitions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.log.topic import Topic, alter_config, check_partitions, check_zones
from penstock_service.instance.instance import Instance
from penstock_service.topics.create_topic import create_heads


def alter_topic(instance: Instance, name: str, partitions: int | None, config: Mapping[str, Any]) -> Topic:
    """The altered topic. One put for each new head, then one conditional put. Other instances notice within 10 s.

    `partitions` is the new count, None to keep it; a setting of None in `config` goes back to its default. A crash
    before the last put leaves empty heads. The next increase takes them, or retention removes them after a deletion.
    Raises UNKNOWN_TOPIC, INVALID_CONFIG, INVALID_REQUEST for fewer partitions or too many, and CONCURRENT_UPDATE if
    another call altered the topic meanwhile.
    """
    old = instance.topic_cache.read_through(name)
    if partitions is not None and check_partitions(partitions) < old.partitions:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{partitions} partitions: topic {name!r} has {old.partitions}, and partitions can only be added",
        )
    new = replace(old, partitions=partitions or old.partitions, config=alter_config(old.config, config))
    check_zones(new.config, len(instance.stores.zones))
    added = map(Partition, range(old.partitions, new.partitions))
    # No delivery has been at the new partitions yet. So their heads begin with the push waiter of subscriptions.
    create_heads(instance.stores.log, instance.executor, new, added, has_push_waiter=True)
    instance.stores.topics.replace(old, new)
    instance.topic_cache.forget(name)
    return new
