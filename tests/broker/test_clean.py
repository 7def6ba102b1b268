"""`cleanup_policy=compact`: the newest record of each key stays where it was, whatever comes between."""

from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from penstock_broker.broker import Broker
from penstock_broker.compact import Compacted, compact
from penstock_broker.produce import produce
from penstock_broker.retain import retain
from penstock_core.compaction import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, decode, encode
from tests.broker.setting import SteppedClock, another_instance, ask, entry, new_topic
from tests.broker.test_compact import pages_of

FOR_EVER, HOUR_MS, DAY_MS = 10**9, 3_600_000, 24 * 3_600_000
SMALL = CompactionSettings(refs_min=4, ref_bytes=2_000, segment_bytes=100_000)
Model = list[tuple[int, bytes | None, bytes | None]]  # offset, key, value
Text = tuple[str | None, str | None]


def keyed(*records: Text, timestamp_ms: int = 1_000, compression: Compression = Compression.NONE) -> bytes:
    made = [
        NewRecord(timestamp_ms, None if key is None else key.encode(), None if value is None else value.encode())
        for key, value in records
    ]
    return encode(made, compression)


def put(broker: Broker, topic: str, data: bytes) -> None:
    [result] = produce(broker, [entry(topic, 0, data)], Acks.QUORUM)
    assert not isinstance(result, PenstockError), result


def append(broker: Broker, topic: str, *records: Text, **how: Any) -> None:
    put(broker, topic, keyed(*records, **how))


def fill(broker: Broker, topic: str, appends: int = 2 * TAIL_ROLL_REFS) -> None:
    """So many appends of keys of their own, so that what was before is in pages."""
    for number in range(appends):
        append(broker, topic, (f"filler {number}", "x"))


def read(broker: Broker, topic: str, offset: int = 0) -> Model:
    """What is served from there on; each fetch moves on."""
    found: Model = []
    while True:
        fetched = ask(broker, topic, offset, max_bytes=700)
        found += [(each.offset, each.key, each.value) for each in decode(fetched.data) if each.offset >= offset]
        if fetched.next_offset == fetched.high_watermark:
            return found
        assert fetched.next_offset > offset
        offset = fetched.next_offset


def of(records: Model, *keys: str) -> list[tuple[int, str, str | None]]:
    return [
        (offset, key.decode(), None if value is None else value.decode())
        for offset, key, value in records
        if key is not None and key.decode() in keys
    ]


def run(broker: Broker, topic: str, **changes: Any) -> Compacted:
    return compact(broker, topic, 0, replace(SMALL, dirty_share_min=0.0, **changes))


@pytest.fixture
def topic(broker: Broker) -> str:
    return new_topic(broker, cleanup_policy="compact")


def test_newest_record_of_each_key_stays_at_its_offset(broker: Broker, topic: str, clock: SteppedClock) -> None:
    append(broker, topic, ("a", "1"), ("b", "1"), ("a", "2"))
    append(broker, topic, ("b", "2"), (None, "without a key"))
    append(broker, topic, ("a", "3"))
    fill(broker, topic)
    before = read(broker, topic)
    clock.time_ms += 2 * HOUR_MS
    assert run(broker, topic).runs == 1
    after = read(broker, topic)
    assert of(after, "a", "b") == [(3, "b", "2"), (5, "a", "3")]
    assert [each for each in before if each[0] > 2] == after  # nothing else went, and nothing moved
    assert read(broker, topic, 4) == [each for each in before if each[0] >= 4]


def test_records_are_removed_from_within_compressed_batches(broker: Broker, topic: str, clock: SteppedClock) -> None:
    for compression in Compression:
        name = compression.name
        append(broker, topic, (name, "1"), (f"{name} stays", "1" * 500), (name, "2"), compression=compression)
        append(broker, topic, (name, "3"), compression=compression)
    fill(broker, topic)
    clock.time_ms += 2 * HOUR_MS
    run(broker, topic)
    kept = [(key, value) for _, key, value in read(broker, topic) if key and not key.startswith(b"filler")]
    names = [compression.name.encode() for compression in Compression]
    assert kept == [each for name in names for each in ((name + b" stays", b"1" * 500), (name, b"3"))]


def test_tombstone_stays_for_delete_retention_after_what_it_deletes_is_gone(
    broker: Broker, clock: SteppedClock
) -> None:
    topic = new_topic(broker, cleanup_policy="compact", delete_retention_ms=DAY_MS)
    append(broker, topic, ("a", "1"))
    append(broker, topic, ("a", None))
    fill(broker, topic)
    clock.time_ms += 40 * DAY_MS  # however old it is
    run(broker, topic)
    assert of(read(broker, topic), "a") == [(1, "a", None)]
    clock.time_ms += DAY_MS - 1_000
    fill(broker, topic)
    run(broker, topic, age_ms_min=0)
    assert of(read(broker, topic), "a") == [(1, "a", None)]
    fill(broker, topic)
    clock.time_ms += 1_000
    run(broker, topic, age_ms_min=0)
    assert of(read(broker, topic), "a") == []


def test_tombstone_waits_for_a_pass_that_has_come_to_its_end(broker: Broker, clock: SteppedClock) -> None:
    """Passes that die after their swaps never let it go, however long they go on."""
    topic = new_topic(broker, cleanup_policy="compact", delete_retention_ms=DAY_MS)
    append(broker, topic, ("a", "1"))
    append(broker, topic, ("a", None))
    fill(broker, topic)

    class Dying:
        def __getattr__(self, name: str) -> Any:
            if name == "save":
                raise RuntimeError("it dies here")
            return getattr(broker.compaction, name)

    for _ in range(4):
        clock.time_ms += 2 * DAY_MS
        with pytest.raises(RuntimeError):
            run(another_instance(broker, compaction=Dying()), topic)
        assert of(read(broker, topic), "a") == [(1, "a", None)]


def test_keys_that_do_not_fit_into_memory_are_cleaned_pass_by_pass(
    broker: Broker, topic: str, clock: SteppedClock
) -> None:
    keys = [f"k{number}" for number in range(4 * TAIL_ROLL_REFS)]
    for round_ in range(3):
        for key in keys:
            append(broker, topic, (key, str(round_)))
    fill(broker, topic)
    clock.time_ms += 2 * HOUR_MS
    sizes, left = [], []
    for _ in range(14):
        left.append(run(broker, topic, keys_max=20, refs_min=10_000).are_keys_left)
        sizes.append(len(read(broker, topic)))
    assert (left[0], left[-1]) == (True, False)
    assert [(key, value) for _, key, value in of(read(broker, topic), *keys)] == [(key, "2") for key in keys]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 3


def test_topic_is_left_while_little_is_new(broker: Broker, topic: str, clock: SteppedClock) -> None:
    for _ in range(2):
        fill(broker, topic, 4 * TAIL_ROLL_REFS)
    clock.time_ms += 2 * HOUR_MS
    small = replace(SMALL, ref_bytes=100)  # nothing to merge
    assert compact(broker, topic, 0, small).runs == 1
    fill(broker, topic, TAIL_ROLL_REFS)
    clock.time_ms += 2 * HOUR_MS
    before = pages_of(broker, topic)
    assert compact(broker, topic, 0, small).runs == 0
    assert pages_of(broker, topic) == before


def test_topic_that_is_only_compacted_keeps_records_of_any_age(broker: Broker, clock: SteppedClock) -> None:
    kept = new_topic(broker, "kept", cleanup_policy="compact", retention_ms=HOUR_MS)
    both = new_topic(broker, "both", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    for topic in (kept, both):
        append(broker, topic, ("a", "1"))
    clock.time_ms += 30 * DAY_MS
    retain(broker, budget_ms=FOR_EVER)
    assert len(read(broker, kept)) == 1
    assert ask(broker, both, 1).log_start_offset == 1


def test_retention_by_size_does_not_count_what_compaction_has_removed(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker, cleanup_policy="compact,delete", retention_ms=100 * DAY_MS)
    for number in range(8 * TAIL_ROLL_REFS):
        append(broker, topic, ("a", str(number) * 50), timestamp_ms=clock.now_ms())
    for number in range(3 * TAIL_ROLL_REFS):
        append(broker, topic, (f"filler {number}", "x"), timestamp_ms=clock.now_ms())
    clock.time_ms += 2 * HOUR_MS
    run(broker, topic)
    held = sum(ref.length for page in pages_of(broker, topic) for ref in page.refs)
    found = broker.directory.look_up(topic)
    broker.topics.replace(found, replace(found, config=replace(found.config, retention_bytes=held)))
    broker.directory.forget(topic)
    assert retain(broker, budget_ms=FOR_EVER).refs_expired == 0


def test_log_start_rises_over_emptied_offsets_no_sooner_than_over_their_records(
    broker: Broker, clock: SteppedClock
) -> None:
    """Neighbours that lost all become one empty batch, of which the newest counts. Who has read up to the last of them
    is not told that the log begins behind."""
    topic = new_topic(broker, cleanup_policy="compact,delete", retention_ms=3 * DAY_MS)
    for _ in range(2):
        for number in range(TAIL_ROLL_REFS):
            append(broker, topic, ("a", str(number)), timestamp_ms=clock.now_ms())
        clock.time_ms += 2 * DAY_MS
    for _ in range(TAIL_ROLL_REFS):
        append(broker, topic, ("a", "newest"), timestamp_ms=clock.now_ms())
    run(broker, topic, age_ms_min=0)
    assert len(read(broker, topic)) == 1
    retain(broker, budget_ms=FOR_EVER)
    assert ask(broker, topic, 3 * TAIL_ROLL_REFS).log_start_offset <= TAIL_ROLL_REFS
    clock.time_ms += 3 * DAY_MS + HOUR_MS
    retain(broker, budget_ms=FOR_EVER)
    assert ask(broker, topic, 3 * TAIL_ROLL_REFS).log_start_offset == 3 * TAIL_ROLL_REFS


def test_batch_that_its_producer_built_wrongly_is_left_whole(broker: Broker, topic: str, clock: SteppedClock) -> None:
    bad = bytearray(keyed(("a", "1"), ("b", "1")))
    bad[61:] = bytes(len(bad) - 61)
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    append(broker, topic, ("c", "1"))
    put(broker, topic, bytes(bad))
    append(broker, topic, ("c", "2"))
    fill(broker, topic)
    clock.time_ms += 2 * HOUR_MS
    done = run(broker, topic)
    assert (done.runs, done.failures) == (1, 0)
    assert done.batches_left_whole == 1
    assert of(read(broker, topic, 3), "c") == [(3, "c", "2")]
