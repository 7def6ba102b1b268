"""Alter a topic: its settings, or more partitions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_heads
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.topic import Topic, alter_config, check_partitions, check_zones


def alter_topic(broker: Broker, name: str, partitions: int | None, config: Mapping[str, Any]) -> Topic:
    """The topic as it is then. New heads first, then one conditional put; other instances notice within 10 s.

    A crash before the put leaves empty heads, which the next one takes, or retention removes after a deletion.

    Raises UNKNOWN_TOPIC, INVALID_CONFIG, INVALID_REQUEST for fewer partitions or too many, CONCURRENT_UPDATE if
    somebody else altered the topic meanwhile.
    """
    old = broker.directory.look_up(name)
    if partitions is not None and check_partitions(partitions) < old.partitions:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{partitions} partitions: topic {name!r} has {old.partitions}, and partitions can only be added",
        )
    new = replace(old, partitions=partitions or old.partitions, config=alter_config(old.config, config))
    check_zones(new.config, len(broker.zones))
    create_heads(broker, new, map(Partition, range(old.partitions, new.partitions)))
    broker.topics.replace(old, new)
    broker.directory.forget(name)
    return new
