"""The workload of a topic with `cleanup_policy=compact`: few keys are written over and over, and deleted now and then.

Consumers begin at the topic's start again and again. Short-lived topics come and go meanwhile. The notes go into lines
next to the histories, because the history checker knows only logs that keep every record.
"""

import json
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from random import Random

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.errors import UnavailableError
from penstock.model import RecordMetadata
from penstock_core.errors import PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from tests.chaos.clients.clients import DELIVERY_TIMEOUT_MS, Target, run_all
from tests.chaos.clients.values import make_value, name_of

KEYED = "latest"
SENT, READ = "keyed-sent.jsonl", "keyed-read.jsonl"
_KEYS = 60
_BURST_MAX = 12
_VALUE_BYTES_MAX = 2_000
_TOMBSTONE_SHARE = 0.1
_PRODUCER_LIFE_S = 20.0
_PASS_S = 12.0
_PAUSE_S = 0.1
_FILL_APPENDS = 2 * TAIL_ROLL_REFS
_PASSING_EACH_S = 3.0
_PASSING_APPENDS = 50
_PASSING_STAYS_S = 4.0


def run_keyed(target: Target, seed: int, stop: Event) -> None:
    """A process's entry: a producer, a consumer, and an operator whose topics come and go.

    The consumer reads from the start on, for a few seconds each time.
    """
    run_all(
        [
            lambda: _produce(target, Random(seed), stop),
            lambda: _read_again_and_again(target, stop),
            lambda: _come_and_go(target, stop),
        ]
    )


def run_keyed_reader(target: Target, name: str, within_s: float) -> None:
    """A process's entry: read the whole topic. Dies if that takes longer than `within_s`."""
    deadline = time.monotonic() + within_s
    partitions = _partitions(target)
    with Consumer(transport=target.transport(), fetch_wait_ms=0, max_in_flight=4) as consumer:
        ends = consumer.end_offsets(partitions)
        _read(
            target, consumer, name, lambda: all(consumer.position(each) >= ends[each] for each in partitions), deadline
        )
        left = {str(each): consumer.position(each) for each in partitions if consumer.position(each) < ends[each]}
        if left:
            raise AssertionError(f"{name} got no further than {left} of {ends}")


def fill_keyed(target: Target) -> None:
    """Append enough to each partition that there are pages to compact, however slowly later appends come."""
    chance = Random(0)
    with (
        (target.folder / SENT).open("xb", buffering=0) as notes,
        Producer(transport=target.transport(), delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer,
    ):
        for number in range(_FILL_APPENDS):
            for each in _partitions(target):
                _send(producer, chance, f"fill-{each.partition}-{number}", notes.write, each.partition)
            producer.flush()


def _produce(target: Target, chance: Random, stop: Event) -> None:
    number = 0
    # Unbuffered, one write per line: the sender's threads write at once.
    with (target.folder / SENT).open("ab", buffering=0) as notes:
        while not stop.is_set():
            ends_at = time.monotonic() + _PRODUCER_LIFE_S
            with Producer(
                transport=target.transport(), linger_ms=20, max_in_flight=2, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
            ) as producer:
                while not stop.is_set() and time.monotonic() < ends_at:
                    for _ in range(chance.randint(1, _BURST_MAX)):
                        number += 1
                        _send(producer, chance, f"keyed-{number}", notes.write)
                    stop.wait(_PAUSE_S)


def _send(
    producer: Producer, chance: Random, sent: str, note: Callable[[bytes], object], partition: int | None = None
) -> None:
    key = f"key-{chance.randrange(_KEYS)}"
    name = None if chance.random() < _TOMBSTONE_SHARE else sent
    size = chance.randint(0, _VALUE_BYTES_MAX) if chance.random() < 0.2 else 0

    def delivered(error: PenstockError | None, metadata: RecordMetadata) -> None:
        told = {
            "key": key,
            "value": name,
            "partition": metadata.partition,
            "offset": None if error else metadata.offset,
            "maybe_applied": error is not None and error.maybe_applied,
        }
        note(json.dumps(told).encode() + b"\n")

    try:
        producer.send(
            KEYED, None if name is None else make_value(name, size), key=key, partition=partition, on_delivery=delivered
        )
    except UnavailableError:
        return  # the topic could not be looked up: nothing was sent


def _read_again_and_again(target: Target, stop: Event) -> None:
    number = 0
    while not stop.is_set():
        with Consumer(transport=target.transport(), max_in_flight=1) as consumer:
            _read(target, consumer, f"meanwhile.{number}", stop.is_set, time.monotonic() + _PASS_S)
        number += 1


def _come_and_go(target: Target, stop: Event) -> None:
    """Create topics with many small appends, and delete them while compaction may run on them. No client reads them."""
    number = 0
    with Admin(transport=target.transport()) as admin:
        while not stop.wait(_PASSING_EACH_S):
            name = f"passing-{number}"
            number += 1
            try:
                admin.create_topic(name, config={"cleanup_policy": ("compact", "delete")[number % 2]})
                with Producer(transport=target.transport(), linger_ms=0, delivery_timeout_ms=5_000) as producer:
                    for index in range(_PASSING_APPENDS):
                        if stop.is_set():
                            return
                        producer.send(name, f"{index}", key=f"key-{index % 5}")
                        producer.flush()
                stop.wait(_PASSING_STAYS_S)
                admin.delete_topic(name)
            except PenstockError:
                continue  # the next topic has another name


def _read(target: Target, consumer: Consumer, name: str, is_done: Callable[[], bool], deadline: float) -> None:
    """Make one pass from the start. Each poll writes a line per partition that moved: its position before and after."""
    partitions = _partitions(target)
    consumer.assign(partitions)
    for each in partitions:
        consumer.seek(each, 0)
    positions = dict.fromkeys(partitions, 0)
    with (target.folder / f"{name}.{READ}").open("xb", buffering=0) as notes:
        while not is_done() and time.monotonic() < deadline:
            try:
                records = consumer.poll(timeout_ms=500)
            except PenstockError:
                continue
            for each in partitions:
                after = consumer.position(each)
                found = [
                    (
                        record.offset,
                        None if record.key is None else record.key.decode(),
                        None if record.value is None else name_of(record.value),
                    )
                    for record in records
                    if record.partition == each.partition
                ]
                if found or after != positions[each]:
                    told = {"partition": each.partition, "from": positions[each], "to": after, "records": found}
                    notes.write(json.dumps(told).encode() + b"\n")
                positions[each] = after


def _partitions(target: Target) -> list[TopicPartition]:
    return [TopicPartition(KEYED, number) for number in range(target.partitions)]
