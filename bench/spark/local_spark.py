"""Shared by all benches of Spark: the session, topics that are filled without a client, segments in files."""

import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import MemorySegmentStore
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce

BATCH_BYTES = 256 * 1024
APPEND_BATCHES = 4
KEYS = 1_000


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Spark on two cores, with the Python that runs the bench, and with these settings added."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("penstock-bench").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark: SparkSession = builder.config(map=dict(settings or {})).getOrCreate()
    return spark


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


class FolderSegmentStore(MemorySegmentStore):
    """Segments as files of one folder: one process puts them, other processes get them, and no emulator is measured."""

    def __init__(self, folder: Path, zone: str) -> None:
        super().__init__(zone)
        self._folder = folder

    def put(self, segment_id: SegmentId, body: bytes, _crc32c: int) -> None:
        (self._folder / segment_id.hex()).write_bytes(body)

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        with (self._folder / segment_id.hex()).open("rb") as file:
            file.seek(position)
            data = file.read(length)
        if len(data) != length:
            raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"{len(data)} of {length} bytes of {segment_id.hex()}")
        return data
