"""Everything that makes a record of a record gives it the record's time or, if it has none, the time of the copy.

The sources are searched for such places, so a new one cannot be forgotten: it must ask `time_of`, and be tried here.
"""

import ast
import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import AsyncDeadLetters, DeadLetters
from penstock.testing import MemoryPenstock
from penstock_core.ids import TopicName
from penstock_core.push.targets.target import copied
from penstock_core.records.codec import NewRecord
from penstock_core.share.dead_letter import DeadLetterOrigin, dead_letter, redriven
from penstock_import.queue.drain import Drain, DrainSettings
from penstock_import.source.records import SourceRecord
from penstock_spark.archive.typed_columns import ARCHIVE_SCHEMA
from penstock_spark.replay.replay_lane import _records
from tests.importer.copies import copy
from tests.importer.memory_source import MemorySource
from tests.importer.queue.memory_queue import MemoryQueue
from tests.sdk.cli.command import run_json
from tests.support.push_records import StoredRecord

ROOT = Path(__file__).parents[2]
TIMES = {"timestamp", "timestamp_ms", "sent_ms"}
WRITES = {"NewRecord", "send", "append"}
NOW_MS = time.time_ns() // 1_000_000
ORIGIN = DeadLetterOrigin(topic=TopicName("orders"), partition=0, offset=0, reason="", deliveries=1, time_ms=NOW_MS)
# A request's own record is new, and has no other time.
NEW_RECORDS = {"functions/penstock_handlers/routes/records_produce.py:_append"}


class _Silent:
    def drained_so_far(self, records: int, repeats: int, undeleted: int) -> None:
        pass

    def waits(self, error: Exception, seconds: float) -> None:
        raise error


def _copy(record: NewRecord | None) -> int:
    assert record is not None
    return record.timestamp_ms


def _service(*topics: str) -> MemoryPenstock:
    service = MemoryPenstock()
    for topic in topics:
        service.create_topic(topic)
    return service


def _stored(service: MemoryPenstock, topic: str) -> int:
    [record] = service.records(topic)
    return record.timestamp_ms


def _moved(timestamp_ms: int) -> int:
    with _service("orders", "dead") as service, service.producer() as producer:
        producer.send("orders", b"v", timestamp_ms=timestamp_ms).result()
        with (
            service.consumer("orders", group_id="g", enable_auto_commit=False) as consumer,
            service.producer(transactional_id="t") as mover,
        ):
            DeadLetters(consumer, mover, "dead").move(next(consumer))
        return _stored(service, "dead")


def _moved_async(timestamp_ms: int) -> int:
    async def move(service: MemoryPenstock) -> None:
        async with (
            service.async_consumer("orders", group_id="g", enable_auto_commit=False) as consumer,
            service.async_producer(transactional_id="t") as mover,
        ):
            await AsyncDeadLetters(consumer, mover, "dead").move(await anext(consumer))

    with _service("orders", "dead") as service, service.producer() as producer:
        producer.send("orders", b"v", timestamp_ms=timestamp_ms).result()
        asyncio.run(move(service))
        return _stored(service, "dead")


def _imported(timestamp_ms: int) -> int:
    source = MemorySource(1)
    source.add(0, None, b"v")
    source.records[0] = [SourceRecord(0, 0, timestamp_ms, None, b"v", ())]
    with _service("orders") as service:
        copy(source, service)
        return _stored(service, "orders")


def _drained(timestamp_ms: int) -> int:
    queue = MemoryQueue()
    queue.send("v", sent_ms=timestamp_ms)
    with _service("orders") as service:
        drain = Drain(queue, service.transport, DrainSettings(topic="orders", wait_ms=0), _Silent())
        drain.progress.create(service.admin())
        drain.run()
        drain.close()
        return _stored(service, "orders")


def _produced_again(timestamp_ms: int) -> int:
    with _service("orders", "copy") as service, service.producer() as producer:
        producer.send("orders", b"v", timestamp_ms=timestamp_ms).result()
        [record] = service.records("orders")
        assert record.timestamp_ms == timestamp_ms, "an export tells the time as it is"
        line = json.dumps({"value": "v", "timestamp_ms": record.timestamp_ms}).encode()
        run_json(service.transport, "produce", "copy", "--format", "json", stdin=line)
        return _stored(service, "copy")


def _replayed(timestamp_ms: int) -> int:
    row: dict[str, object] = {
        "key": None,
        "value": b"v",
        "partition": 0,
        "offset": 0,
        "timestamp": timestamp_ms * 1_000,
        "headers": [],
    }
    schema = pa.schema([ARCHIVE_SCHEMA.field(name) for name in row])
    columns = [pa.array([value], pa.int64()).cast(kind) if name == "timestamp" else pa.array([value], kind)
               for (name, value), kind in zip(row.items(), schema.types, strict=True)]  # fmt: skip
    [(_, _, copied_ms, _)] = _records(pa.table(columns, schema=schema), NOW_MS)
    return copied_ms


WRITERS: Mapping[str, Callable[[int], int]] = {
    "functions/penstock_core/share/dead_letter.py:dead_letter": lambda time_ms: _copy(
        dead_letter(StoredRecord(0, time_ms), ORIGIN)
    ),
    "functions/penstock_core/share/dead_letter.py:redriven": lambda time_ms: _copy(
        redriven(StoredRecord(0, time_ms), NOW_MS)
    ),
    "functions/penstock_core/push/targets/target.py:copied": lambda time_ms: _copy(
        copied(StoredRecord(0, time_ms), NOW_MS)
    ),
    "sdk/penstock/dead_letters/dead_letters.py:move": _moved,
    "sdk/penstock/dead_letters/async_dead_letters.py:move": _moved_async,
    "sdk/penstock_import/copying/copier.py:_commit": _imported,
    "sdk/penstock_import/queue/drain.py:_commit": _drained,
    "sdk/penstock/cli/records/produce.py:produce": _produced_again,
    "glue_jobs/penstock_spark/replay/replay_lane.py:_records": _replayed,
}


def _functions() -> Iterator[tuple[str, ast.AST]]:
    for layer in ("functions", "sdk", "glue_jobs"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{path.relative_to(ROOT).as_posix()}:{node.name}", node


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name | ast.Attribute):
            yield each.func.id if isinstance(each.func, ast.Name) else each.func.attr, each


def _reads_time(node: ast.AST) -> bool:
    """The expression reads a record's time. It may compute with it, but does not give it to a function."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in ("max", "min", "int"):
        return False
    is_time = isinstance(node, ast.Attribute) and node.attr in TIMES
    return is_time or any(map(_reads_time, ast.iter_child_nodes(node)))


def test_nothing_writes_the_time_of_another_record_as_it_is() -> None:
    places = {
        place
        for place, function in _functions()
        for name, call in _calls(function)
        if name in WRITES and any(map(_reads_time, [*call.args, *call.keywords]))
    }
    assert places == NEW_RECORDS


def test_every_place_that_copies_a_record_is_tried_here() -> None:
    places = {place for place, function in _functions() if any(name == "time_of" for name, _ in _calls(function))}
    assert places == WRITERS.keys()


@pytest.mark.parametrize(("place", "time_ms"), [*product(WRITERS, (-1, 0, 5))])
def test_copy_has_the_time_of_its_record_or_of_the_copy(place: str, time_ms: int) -> None:
    found_ms = WRITERS[place](time_ms)
    if time_ms < 0:
        assert found_ms >= NOW_MS
    else:
        assert found_ms == time_ms
