"""A topic with pages to merge, and a run over it; records with keys, and all that a reader finds."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import Page
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import CompactionResult, compact
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.support.service import (
    SteppedClock,
    ask,
    entry,
    key_of,
    new_topic,
    send,
)

FOR_EVER, HOUR_MS = 10**9, 3_600_000
APPENDS = 5 * TAIL_ROLL_REFS + 3
SMALL = CompactionSettings(refs_min=4, ref_bytes=2_000, segment_bytes=100_000)
Model = list[tuple[int, bytes | None, bytes | None]]  # offset, key, value
Text = tuple[str | None, str | None]


def pages_of(instance: Instance, topic: str) -> list[Page]:
    return [*instance.stores.log.pages(key_of(instance, topic), Offset(0), 10_000)]


def run(instance: Instance, topic: str, **changes: Any) -> CompactionResult:
    return compact(instance, topic, 0, replace(SMALL, **changes))


def written(instance: Instance, clock: SteppedClock, name: str = "orders", **config: int) -> str:
    """A topic with five pages and a tail, two records in each append, all of two hours ago."""
    topic = new_topic(instance, name, **config)
    _fill(instance, clock, topic)
    return topic


def written_again(instance: Instance, clock: SteppedClock, name: str) -> None:
    """Five pages more in the topic, which this makes if there is none."""
    if all(topic.name != name for topic in instance.stores.topics.list()):
        new_topic(instance, name)
    _fill(instance, clock, name)


def _fill(instance: Instance, clock: SteppedClock, topic: str) -> None:
    for number in range(APPENDS):
        send(instance, topic, f"{number}a", f"{number}b")
    clock.time_ms += 2 * HOUR_MS


def keyed(*records: Text, timestamp_ms: int = 1_000, compression: Compression = Compression.NONE) -> bytes:
    made = [
        NewRecord(timestamp_ms, None if key is None else key.encode(), None if value is None else value.encode())
        for key, value in records
    ]
    return encode(made, compression)


def put(instance: Instance, topic: str, data: bytes) -> None:
    [result] = produce(instance, [entry(topic, 0, data)], Acks.QUORUM)
    assert not isinstance(result, PenstockError), result


def append(instance: Instance, topic: str, *records: Text, **how: Any) -> None:
    put(instance, topic, keyed(*records, **how))


def read(instance: Instance, topic: str, offset: int = 0) -> Model:
    """The records from the offset on, fetch by fetch; each fetch moves on."""
    found: Model = []
    while True:
        fetched = ask(instance, topic, offset, max_bytes=700)
        found += [(each.offset, each.key, each.value) for each in decode(fetched.data) if each.offset >= offset]
        if fetched.next_offset == fetched.high_watermark:
            return found
        assert fetched.next_offset > offset
        offset = fetched.next_offset


@pytest.fixture
def topic(instance: Instance, clock: SteppedClock) -> str:
    return written(instance, clock)
