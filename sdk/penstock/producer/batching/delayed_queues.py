"""The queues of delayed records: one for each partition and due time, and one for each cancellable record."""

from collections.abc import Callable

from penstock.producer.batching.producer_batch import PartitionQueue, TopicQueues
from penstock.producer.delays import Timer


def delayed_queue(
    topic: TopicQueues, partition: int | None, timer: Timer, choose: Callable[[int], int]
) -> PartitionQueue:
    """The queue of the record's partition and due time if it takes more, else a new one under the record's timer.

    A cancellable record is alone. It closes the open queue, so that later records come behind it.
    """
    queue = topic.delayed.get(_place(partition, timer))
    if queue is not None and queue.open_batch is not None and not timer.is_cancellable:
        return queue
    if queue is not None:
        close_delayed(queue)
    if partition is None:
        partition = topic.first + choose(topic.partitions)
    return PartitionQueue(topic, partition, timer)


def share_delayed(queue: PartitionQueue, partition: int | None) -> None:
    """Lets later records of the queue's partition (None for records without a key) and due time join it."""
    if queue.timer is not None and not queue.timer.is_cancellable:
        queue.topic.delayed[_place(partition, queue.timer)] = queue


def close_delayed(queue: PartitionQueue) -> None:
    """Lets no other record join a queue of delayed records."""
    if queue.timer is None:
        return
    queue.open_batch = None
    for place in ((queue.partition, queue.timer.deliver_at_ms), (-1, queue.timer.deliver_at_ms)):
        if queue.topic.delayed.get(place) is queue:
            del queue.topic.delayed[place]


def _place(partition: int | None, timer: Timer) -> tuple[int, int]:
    return (-1 if partition is None else partition, timer.deliver_at_ms)
