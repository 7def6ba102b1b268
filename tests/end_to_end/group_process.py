"""A consumer as a process of its own, to be killed: `python group_process.py TOPIC GROUP INSTANCE SESSION_MS LOG`.

Each line of LOG is written before the next thing happens: `record PARTITION OFFSET VALUE`, `assigned`, `revoked` or
`lost` with the partitions, and `closing`. INSTANCE may be empty. SIGTERM ends it in order.
"""

import signal
import sys
from pathlib import Path
from typing import Any

from penstock import Consumer, TopicPartition

HEARTBEAT_MS = 500


def main(topic: str, group: str, instance: str, session_ms: str, log: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    with Path(log).open("a") as lines:

        def say(*words: Any) -> None:
            print(*words, file=lines, flush=True)

        def told(what: str) -> Any:
            def tell(partitions: list[TopicPartition]) -> None:
                say(what, *(each.partition for each in partitions))

            return tell

        with Consumer(
            topic,
            group_id=group,
            group_instance_id=instance or None,
            session_timeout_ms=int(session_ms),
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_commit_interval_ms=200,
            max_poll_records=20,
            on_assigned=told("assigned"),
            on_revoked=told("revoked"),
            on_lost=told("lost"),
        ) as consumer:
            while not stopping:
                for record in consumer.poll(timeout_ms=200):
                    say("record", record.partition, record.offset, (record.value or b"").decode())
            say("closing")


if __name__ == "__main__":
    main(*sys.argv[1:])
