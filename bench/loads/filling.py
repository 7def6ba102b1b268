"""Fills topics through the service's own code, without a client: the data that jobs and Spark read."""

import random
from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce

BATCH_BYTES = 256 * 1024
APPEND_BATCHES = 4
KEYS = 1_000


def fill_topic(instance: Instance, topic: Topic, value_bytes: int, count: int) -> int:
    """Appends at least `count` records with random values, to each partition in turn, and returns their number.

    An append holds four batches of at most 256 KiB each. Random values do not compress.
    """
    chance = random.Random(1)
    now_ms = instance.clock.now_ms()
    batch_records = max(1, min(BATCH_BYTES // value_bytes, count // APPEND_BATCHES))
    append_records = APPEND_BATCHES * batch_records
    appends = -(-count // append_records)
    for number in range(appends):
        batches = [
            encode(
                [
                    NewRecord(now_ms, b"key-%d" % (each % KEYS), chance.randbytes(value_bytes))
                    for each in range(batch_records)
                ]
            )
            for _ in range(APPEND_BATCHES)
        ]
        entry = ProduceEntry(topic=topic.name, partition=number % topic.partitions, data=b"".join(batches))
        [result] = produce(instance, [entry], Acks.QUORUM)
        if isinstance(result, PenstockError):
            raise result
    return appends * append_records


def append_to_all(instance: Instance, topic: str, partitions: int, batch: bytes) -> None:
    """Appends the batch to each partition in one request, and repeats it for partitions that refused.

    On a busy machine the emulator is sometimes late. Then a partition can hold the batch twice.
    """
    left: Sequence[ProduceEntry] = [
        ProduceEntry(topic=topic, partition=number, data=batch) for number in range(partitions)
    ]
    while left:
        results = produce(instance, left, Acks.QUORUM)
        left = [entry for entry, result in zip(left, results, strict=True) if isinstance(result, PenstockError)]
