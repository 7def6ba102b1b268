"""Many real producers on one partition of the deployed stack: rolls and evictions keep up with them."""

import threading
from collections import Counter

import pytest

from penstock import Consumer, Producer, TopicPartition
from penstock_core.ids import Offset
from penstock_core.limits import HEAD_PRODUCERS_KEPT
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import DEADLINE_S

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

PRODUCERS = 200
RECORDS = 12  # of each producer, sent one after the other
TAIL_MAX = 64
AT_ONCE = 16  # calls: the emulator starts a process for each concurrent call


def test_tail_and_head_stay_short_under_200_producers(stack: Stack, storage: StackStorage, topic: str) -> None:
    barrier = threading.Barrier(PRODUCERS, timeout=DEADLINE_S)
    slots = threading.BoundedSemaphore(AT_ONCE)
    longest: list[int] = []
    errors: list[BaseException] = []

    def produce(number: int) -> None:
        try:
            with Producer(transport=stack.transport(), linger_ms=0) as producer:
                barrier.wait()
                for record in range(RECORDS):
                    with slots:
                        producer.send(topic, f"{number} {record}".encode(), partition=0).result()
                    if number == 0:
                        longest.append(len(storage.head(topic).tail))
        except BaseException as error:
            barrier.abort()
            errors.append(error)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[:3]
    assert max(longest) < TAIL_MAX
    head = storage.head(topic)
    assert len(head.tail) < TAIL_MAX
    assert len(head.producers) < 3 * HEAD_PRODUCERS_KEPT, "producers leave the head while the others write"
    assert head.evictions > 0
    counts = Counter(_values(stack, topic, head.next_offset))
    assert counts == {f"{number} {record}": 1 for number in range(PRODUCERS) for record in range(RECORDS)}


def _values(stack: Stack, topic: str, end: Offset) -> list[str]:
    with Consumer(transport=stack.transport()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[str] = []
        while len(values) < end:
            values += [record.value.decode() for record in consumer.poll() if record.value is not None]
        return values
