"""Records to count, and the rows that the job stores."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from penstock_core.errors import PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_spark.analysis.measure import HOUR_MS
from tests.support.service import entry, new_topic

if TYPE_CHECKING:
    pass

Rows = dict[tuple[str, int, int], dict[str, Any]]  # by topic, partition and hour
RunJob = Callable[..., dict[str, Any]]


class SentRecord(NamedTuple):
    """A record as the test produced it."""

    topic: str
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def send(instance: Instance, records: Sequence[SentRecord], compression: Compression = Compression.NONE) -> None:
    """One append for each partition."""
    by_partition: dict[tuple[str, int], list[NewRecord]] = defaultdict(list)
    for each in records:
        by_partition[each.topic, each.partition].append(NewRecord(each.timestamp_ms, each.key, each.value))
    for (topic, partition), found in by_partition.items():
        [result] = produce(instance, [entry(topic, partition, encode(found, compression))], Acks.QUORUM)
        assert not isinstance(result, PenstockError)


def stored(folder: Path) -> Rows:
    """All rows of all hours' files."""
    rows = [row for path in sorted(folder.glob("hours/*/hour.parquet")) for row in pq.read_table(path).to_pylist()]
    by_key = {(row["topic"], row["partition"], int(row["hour"].timestamp() * 1000)): row for row in rows}
    assert len(by_key) == len(rows), "a topic, partition and hour has one row"
    return by_key


def hour_ago(instance: Instance, hours: int) -> int:
    return (instance.clock.now_ms() // HOUR_MS - hours) * HOUR_MS


def skewed(instance: Instance) -> list[SentRecord]:
    """Two topics over four hours: one key with most records, keys and values that are null, empty, binary and large."""
    new_topic(instance, "orders", partitions=3)
    new_topic(instance, "telemetry", partitions=1)
    new_topic(instance, "nothing", partitions=2)
    records = []
    for hours in (4, 3, 2):
        start_ms = hour_ago(instance, hours)
        for number in range(120):
            key = b"whale" if number % 3 else f"minnow-{number}".encode()
            at_ms = start_ms + number * 20_000
            records.append(SentRecord("orders", 1 if key == b"whale" else 0, at_ms, key, b"v" * (number * hours)))
    start_ms = hour_ago(instance, 3)
    records += [
        SentRecord("telemetry", 0, start_ms, None, b"no key"),
        SentRecord("telemetry", 0, start_ms + 1, b"", b"an empty key"),
        SentRecord("telemetry", 0, start_ms + 2, b"gone", None),
        SentRecord("telemetry", 0, start_ms + 3, None, None),
        SentRecord("telemetry", 0, start_ms + 4, b"\xff\x00<b>", b""),
        SentRecord("telemetry", 0, start_ms + 5, b"k" * 300_000, b"a large key"),
        SentRecord("telemetry", 0, start_ms + HOUR_MS - 1, b"", b"the hour's last"),
        SentRecord("telemetry", 0, start_ms + HOUR_MS, b"next", b"the next hour's first"),
    ]
    return records
