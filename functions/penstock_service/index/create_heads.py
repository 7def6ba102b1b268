"""Create the heads of partitions that a topic gets, while the topic is surely there."""

from collections.abc import Iterable

from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow


def create_heads(
    instance: Instance,
    window: UpdateWindow,
    topic: Topic,
    partitions: Iterable[Partition],
    *,
    has_push_waiter: bool = False,
) -> None:
    """Make empty heads for the partitions that have none, and a push waiter in each if asked. One put for each.

    The window was opened before the topic was read: later the topic may be gone for good, and nothing would remove its
    heads. Raises the first error.
    """

    def create(partition: Partition) -> None:
        window.check()
        instance.stores.log.create_head(PartitionKey(topic.topic_id, partition), has_push_waiter)

    instance.executor.map(create, [*partitions]).all_ok()
