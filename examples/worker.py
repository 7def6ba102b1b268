"""A worker of a consumer group that stops on SIGTERM without losing or repeating work.

    python examples/worker.py orders

Start as many as the topic has partitions: they share them. ECS, Kubernetes and systemd send SIGTERM before they stop a
process. The worker then finishes the records that it has in hand, commits their offsets and leaves the group, so the
next worker goes on at once and gets no record again.

A worker that is killed instead, by SIGKILL, leaves its partitions without an owner for up to 45 seconds, the group's
session. Then another worker gets the records since the last commit again.
"""

import signal
import sys
from collections.abc import Callable

from penstock import Consumer, ConsumerRecord


def handle(record: ConsumerRecord) -> None:
    """The work. If it raises, the worker ends without a commit, and the record comes again."""
    print(record.partition, record.offset, (record.value or b"").decode(errors="replace"), flush=True)


def work(consumer: Consumer, handle: Callable[[ConsumerRecord], object]) -> None:
    """Handle and commit poll after poll, until the consumer is stopped. It has `enable_auto_commit=False`."""
    while not consumer.is_stopped:
        records = consumer.poll()
        for record in records:
            handle(record)
        if records:
            consumer.commit()


def main(topic: str) -> None:
    """Work on the topic until SIGTERM or SIGINT. Closing the consumer leaves the group."""
    with Consumer(topic, group_id="workers", enable_auto_commit=False) as consumer:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.stop())
        work(consumer, handle)


if __name__ == "__main__":
    main(sys.argv[1])
