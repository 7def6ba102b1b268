"""Each module that decodes stored batches comes to the record behind bombs and undecodable batches, in bounded parts.

The modules are found by their imports. So a new reader fails here, until it has a scenario or a test of its own.
"""

import ast
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import MemoryPenstock
from penstock_core.compaction.cleaning import Cleaner, LatestOffsets
from penstock_core.errors import PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import LockNonce
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, FETCH_BYTES_MAX, MIB, READ_DECODED_BYTES_MAX
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.records.codec import NewRecord, empty_batch, encode
from penstock_core.records.compression import decompress_into
from penstock_core.records.record_batch import Compression
from penstock_core.share.acknowledge import AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.push.parallel.parallel_group import put_parallel_group
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.acquire.decode_acquired import decode_acquired
from penstock_service.share.dead_letters.redrive import RedriveWish, redrive
from penstock_spark.decode.decoding import StoredBatches, kafka_schema
from penstock_spark.decode.decoding import decode as decode_for_spark
from tests.handlers.service import Service
from tests.service.share.sharing import GROUP, finish, new_group, offsets_in, take
from tests.support.poison import NOW_MS, bomb, put_batch, undecodable_batch
from tests.support.push_deliveries import Deliveries
from tests.support.service import head_of, new_topic

ROOT = Path(__file__).parents[3]
DECODERS = {
    ("penstock_core.records.codec", "decode"),
    ("penstock_core.records.codec", "keep_records"),
    ("penstock_core.records.record_check", "DecodeBudget"),
    ("penstock_core.filters.filtered_batch", "FilterBudget"),
    ("penstock_service.share.batches.decode_batches", "decode_batches"),
    ("penstock_spark.decode.decoding", "decode"),
}
BOMBS, BOMB_BYTES = 8, 40 * MIB  # more than three parts
BEHIND = BOMBS + 1  # the offset of the good record: bombs, an undecodable batch, and it
GOOD = encode([NewRecord(NOW_MS, b"k", b"good", [("type", b"yes"), (f"{HEADER_PREFIX}topic", b"again")])])
ROUNDS = 60
PARTS_HELD = 2  # at once: records, and copies of them
PART = READ_DECODED_BYTES_MAX + BATCH_DECODED_BYTES_MAX  # decoded bytes: a budget, and the rest of a batch

Step = Callable[[], bool]
"""One call of a reader. True once the record behind has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The reader of a poisoned topic, and how often one of its calls may spend a budget.

    With None, a call reads part after part until its time is over: then the bytes that it holds at once are bounded.
    """

    start: Callable[[Instance], Step]
    budgets: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The reason why a module needs no scenario here; `test` is the path of the test that covers it, if it reads."""

    why: str
    test: str = ""


def poisoned(instance: Instance, topic: str = "orders", bombs: bytes | None = None) -> None:
    letter = (f"{HEADER_PREFIX}topic", b"again")
    large = encode([NewRecord(NOW_MS, b"k", bytes(BOMB_BYTES), [letter])], Compression.ZSTD)
    for data in (*[bombs or large] * BOMBS, undecodable_batch(1), GOOD):
        produce(instance, [ProduceEntry(topic=topic, partition=0, data=data)], Acks.QUORUM).all_ok()


def sharing(acquire: Callable[[Instance], Any] = take, **config: Any) -> Callable[[Instance], Step]:
    def start(instance: Instance) -> Step:
        new_topic(instance)
        new_topic(instance, "dead")
        new_group(instance, dead_letter_topic="dead", **config)
        poisoned(instance)

        def step() -> bool:
            acquired = acquire(instance)
            if (0, BEHIND) in offsets_in(acquired):
                return True
            finish(instance, acquired)
            return False

        return step

    return start


def as_json(instance: Instance) -> Any:
    wish = AcquireWish(nonce=LockNonce("nonce-01"), records_max=100, bytes_max=FETCH_BYTES_MAX)
    try:
        return decode_acquired(instance, acquire(instance, GROUP, wish), lambda record: len(record.value or b""))[0]
    except PenstockError:  # the only records were too large: they wait
        return take(instance)


def burying(instance: Instance) -> Step:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    poisoned(instance)

    def step() -> bool:
        finish(instance, take(instance), AckType.REJECT)
        return head_of(instance, "dead").next_offset == BEHIND + 1

    return step


def redriving(instance: Instance) -> Step:
    new_topic(instance, "dead")
    new_topic(instance, "again")
    poisoned(instance, "dead")
    cursor = None

    def step() -> bool:
        nonlocal cursor
        done = redrive(instance, "dead", RedriveWish(records_max=1, cursor=cursor))
        cursor = done.cursor
        return head_of(instance, "again").next_offset == BOMBS + 1

    return step


def pushing(**settings: Any) -> Callable[[Instance], Step]:
    """The target refuses what is larger than an event may be, as Lambda does."""

    def start(_instance: Instance) -> Step:
        retry = {"attempts_max": 1, "patience_ms": 0}
        deliveries = Deliveries(settings={"dead_letter_topic": "dead", "batch_records": 2, **retry, **settings})
        new_topic(deliveries.instance, "dead")
        if settings.get("mode") == "parallel":
            put_parallel_group(deliveries.instance, deliveries.subscription, [])
        handled: set[int] = set()

        def answer(batch: PushBatch) -> Answer:
            if any(len(each.record.value or b"") > 6 * MIB for each in batch.records):
                return Failed(failure=Failure.REFUSAL, error="it is too large")
            handled.update(each.record.offset for each in batch.records)
            return Answered()

        deliveries.answer = answer
        poisoned(deliveries.instance)
        deliveries.start()

        def step() -> bool:
            visible_ms = deliveries.queue.next_visible_ms
            assert visible_ms is not None
            deliveries.clock.time_ms = max(deliveries.clock.time_ms, visible_ms)
            deliveries.run_once()
            return BEHIND in handled

        return step

    return start


def fetching(instance: Instance) -> Step:
    new_topic(instance)
    poisoned(instance)
    offset = 0

    def step() -> bool:
        nonlocal offset
        entry = FetchEntry(
            topic="orders", partition=0, offset=offset, max_bytes=MIB, filter=parse_filter({"type": ["yes"]})
        )
        [result] = fetch(instance, [entry], max_bytes=MIB, min_bytes=1, wait_ms=0).all_ok()
        offset = result.next_offset
        return offset == BEHIND + 1

    return step


def consuming(_instance: Instance) -> Step:
    service = MemoryPenstock()
    service.create_topic("orders")
    for data in (*[bomb(BOMB_BYTES)] * BOMBS, undecodable_batch(1), GOOD):
        put_batch(service.transport, "orders", data)
    consumer = service.consumer("orders", group_id="readers", on_undecodable="skip", auto_offset_reset="earliest")
    return lambda: any(record.value == b"good" for record in consumer.poll(timeout_ms=1_000))


def sharing_by_the_sdk(_instance: Instance) -> Step:
    service = MemoryPenstock()
    service.create_topic("orders")
    service.create_topic("dead")
    service.create_share_group("workers", "orders", {"dead_letter_topic": "dead"})
    for data in (*[bomb(BOMB_BYTES)] * BOMBS, undecodable_batch(1), GOOD):
        put_batch(service.transport, "orders", data)
    consumer = service.share_consumer(group_id="workers")

    def step() -> bool:
        found = consumer.poll(timeout_ms=1_000)
        for record in found:
            consumer.accept(record)
        return any(record.value == b"good" for record in found)

    return step


def fetching_json(instance: Instance) -> Step:
    new_topic(instance)
    poisoned(instance)
    offset = 0

    def step() -> bool:
        nonlocal offset
        path, query = "/v1/topics/orders/partitions/0/records", {"offset": str(offset)}
        answer = Service(instance).call("GET", path, **query)
        if answer.status == 200:
            return [each["offset"] for each in answer.json["records"]] == [BEHIND]
        assert answer.json["error"]["code"] in ("RECORD_TOO_LARGE", "CORRUPT_BATCH")
        offset += 1
        return False

    return step


def cleaning(_instance: Instance) -> Step:
    """The bombs have the key of the good record behind them, and go. The undecodable batch stays."""
    old = encode([NewRecord(NOW_MS, b"k", bytes(BOMB_BYTES))], Compression.ZSTD)
    stored = [*enumerate([*[old] * BOMBS, undecodable_batch(1), GOOD])]

    def step() -> bool:
        latest = LatestOffsets()
        for offset, batch in stored:
            latest.add(batch, offset)
        found = [*Cleaner(latest, horizon=0).clean(stored)]
        return found == [(0, empty_batch(BOMBS)), *stored[BOMBS:]]

    return step


def by_spark(_instance: Instance) -> Step:
    large = encode([NewRecord(NOW_MS, b"k", bytes(BOMB_BYTES))], Compression.ZSTD)
    data = b"".join([*[large] * BOMBS, undecodable_batch(1), GOOD])
    stored = StoredBatches(topic="orders", partition=0, data=data, base_offset=0, start_offset=0, end_offset=BEHIND + 1)
    rows = decode_for_spark([stored], kafka_schema(with_headers=True), lambda _: None)
    return lambda: next(rows).column("offset")[-1].as_py() == BEHIND


PLUMBING = Elsewhere(why="it decodes by the budget of its caller")
READERS: dict[str, Reader | Elsewhere] = {
    "functions/penstock_core/compaction/cleaning.py": Reader(start=cleaning, budgets=None),
    "functions/penstock_core/filters/filtered_batch.py": PLUMBING,
    "functions/penstock_core/records/record_check.py": PLUMBING,
    "functions/penstock_handlers/routes/records_fetch.py": Reader(start=fetching_json),
    "functions/penstock_service/mirror/push_log.py": Elsewhere(
        why="it decodes one batch, of which the mirror has a part", test="tests/service/mirror/test_mirrored_log.py"
    ),
    "functions/penstock_service/push/parallel/held_records.py": Reader(start=pushing(mode="parallel"), budgets=None),
    "functions/penstock_service/push/read_ahead.py": Reader(start=pushing(), budgets=None),
    "functions/penstock_service/records/produce.py": Elsewhere(
        why="it refuses them", test="tests/service/records/test_produce.py"
    ),
    "functions/penstock_service/records/scan.py": Reader(start=fetching),
    "functions/penstock_service/share/acquire/acquire.py": Reader(start=sharing(), budgets=2),
    "functions/penstock_service/share/acquire/decode_acquired.py": Reader(start=sharing(as_json), budgets=2),
    "functions/penstock_service/share/acquire/fresh_window.py": Reader(start=sharing(ordering="key"), budgets=2),
    "functions/penstock_service/share/acquire/hand_over.py": Reader(
        start=sharing(filter={"type": ["yes"]}, ordering="key"), budgets=3
    ),
    "functions/penstock_service/share/acquire/look_through.py": Reader(
        start=sharing(filter={"type": ["yes"]}), budgets=2
    ),
    "functions/penstock_service/share/acquire/read_tenants.py": Reader(start=sharing(sharing="fair"), budgets=2),
    "functions/penstock_service/share/batches/decode_batches.py": PLUMBING,
    "functions/penstock_service/share/dead_letters/bury.py": Reader(start=burying, budgets=8),
    "functions/penstock_service/share/dead_letters/redrive.py": Reader(start=redriving, budgets=2),
    "functions/penstock_service/topics/list_offsets.py": Elsewhere(
        why="it answers an offset that is not too high", test="tests/service/topics/test_list_offsets.py"
    ),
    "glue_jobs/penstock_spark/analysis/lag.py": PLUMBING,
    "glue_jobs/penstock_spark/archive/archive_files.py": PLUMBING,
    "glue_jobs/penstock_spark/decode/by_codec.py": Reader(start=by_spark),
    "glue_jobs/penstock_spark/source/batch.py": PLUMBING,
    "sdk/penstock/consumer/partition_cursor.py": Reader(start=consuming),
    "sdk/penstock/doctor/round_trip.py": Elsewhere(why="it reads a record of its own"),
    "sdk/penstock/producer/batching/moved_batches.py": Elsewhere(why="it decodes batches of its own producer"),
    "sdk/penstock/prove/proven_stage.py": Elsewhere(why="it reads records of its own, in a topic of its own"),
    "sdk/penstock_kafka/checked_batches.py": Elsewhere(
        why="it looks at times, and refuses wrong ones", test="tests/kafka/produce/test_produce.py"
    ),
    "sdk/penstock_kafka/service/service.py": Elsewhere(
        why="it refuses records, within a budget", test="tests/core/records/test_record_check.py"
    ),
    "sdk/penstock/share/acquire_call.py": Reader(
        start=sharing_by_the_sdk, budgets=ROUNDS
    ),  # its thread acquires during the poll; tests/sdk/share/test_bombs.py has the bound of one call
}


@cache
def importers() -> frozenset[tuple[str, str]]:
    """Each module that imports a decoder, with the decoder's name."""
    return frozenset(
        (str(path.relative_to(ROOT)), each.name)
        for folder in ("functions", "sdk", "glue_jobs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if (node.module, each.name) in DECODERS
    )


def test_each_module_that_decodes_batches_has_a_scenario_or_a_reason() -> None:
    assert {path for path, _ in importers()} == {*READERS}, "give a new reader a scenario"
    for each in READERS.values():
        assert not isinstance(each, Elsewhere) or not each.test or (ROOT / each.test).exists()


def test_no_module_of_the_service_decodes_without_a_budget() -> None:
    found = {path for path, name in importers() if name == "decode"}
    assert not {path for path in found if path.startswith("functions/penstock_service/")}
    handlers = {path for path in found if path.startswith("functions/penstock_handlers/")}
    assert handlers == {"functions/penstock_handlers/routes/records_fetch.py"}, "it stops at the bytes of its answer"


def with_peak(step: Step) -> tuple[bool, int]:
    """What the step returns, and the most bytes that Python's objects took meanwhile."""
    tracemalloc.start()
    try:
        return step(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", [path for path, each in READERS.items() if isinstance(each, Reader)])
def test_reader_comes_to_the_record_behind_in_bounded_parts(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    decoded: list[int] = []

    def counting(payload: memoryview, compression: Compression, output: memoryview) -> int:
        count = decompress_into(payload, compression, output)
        decoded.append(count)
        return count

    for module in ("penstock_core.records.codec", "penstock_spark.decode.decoding"):
        monkeypatch.setattr(f"{module}.decompress_into", counting)
    reader = READERS[path]
    assert isinstance(reader, Reader)
    step = reader.start(instance)
    for _ in range(ROUNDS):
        decoded.clear()
        has_come, held = with_peak(step) if reader.budgets is None else (step(), sum(decoded))
        assert held <= (reader.budgets or PARTS_HELD) * PART
        if has_come:
            return
    pytest.fail("the record behind did not come")
