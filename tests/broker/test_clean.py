"""`cleanup_policy=compact`: the newest record of each key stays where it was, whatever comes between."""

from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fetch_buffer import FetchBuffer, FetchSettings
from penstock.model import TopicPartition
from penstock.retry import RetryPolicy
from penstock_broker.broker import Broker
from penstock_broker.compact import Compacted, compact
from penstock_broker.produce import produce
from penstock_broker.retain import retain
from penstock_broker.sweep import sweep
from penstock_broker.truncate import truncate
from penstock_core.compaction import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import COMPACTION_LEASE_MS, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, decode, encode
from tests.broker.interleaving import dying, that_dies
from tests.broker.setting import SteppedClock, another_instance, ask, entry, new_topic, patient_broker
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
    sizes = []
    for _ in range(14):
        run(broker, topic, keys_max=20, refs_min=10_000)
        sizes.append(len(read(broker, topic)))
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
    assert broker.events.take()[0]["batches_left_whole"] == 1
    assert of(read(broker, topic, 3), "c") == [(3, "c", "2")]


@pytest.mark.parametrize("is_applied", [False, True])
def test_pass_that_died_anywhere_removes_nothing_that_is_newest_and_the_next_finishes(
    clock: SteppedClock, is_applied: bool
) -> None:
    place = 1
    while True:
        broker = patient_broker(clock)
        topic = new_topic(broker, cleanup_policy="compact")
        for number in range(3 * TAIL_ROLL_REFS):
            append(broker, topic, (f"k{number % 5}", str(number)), ("gone", str(number)))
        clock.time_ms += 2 * HOUR_MS
        latest = {key: value for _, key, value in read(broker, topic)}
        with dying() as was_killed:
            run(that_dies(broker, place, is_applied=is_applied), topic, segment_bytes=2_500)
        assert {key: value for _, key, value in read(broker, topic)} == latest
        clock.time_ms += COMPACTION_LEASE_MS + 1
        run(broker, topic)
        records = read(broker, topic)
        assert ({key: value for _, key, value in records}, len(records)) == (latest, 6)
        clock.time_ms += 25 * HOUR_MS
        sweep(broker, budget_ms=FOR_EVER)
        assert read(broker, topic) == records
        if not was_killed:
            break
        place += 9
    assert place > 90


def consume(broker: Broker, topic: str, offset: int) -> Model:
    """As the SDK's consumer does, from its own buffer."""
    retry = RetryPolicy(backoff_ms=1, backoff_max_ms=1)
    buffer = FetchBuffer(
        FetchSettings(
            fetch_max_bytes=300,
            fetch_wait_ms=0,
            buffer_bytes=10_000_000,
            max_in_flight=1,
            offset_reset="none",
            retry=retry,
        )
    )
    partition = TopicPartition(topic, 0)
    buffer.assign([partition])
    buffer.seek(partition, offset)
    found: Model = []
    while True:
        request = buffer.next_request(0)
        assert request is not None
        [wanted] = request.body["partitions"]
        fetched = ask(broker, topic, wanted["offset"], max_bytes=300)
        answer = {
            "log_start_offset": fetched.log_start_offset,
            "high_watermark": fetched.high_watermark,
            "next_offset": fetched.next_offset,
            "length": len(fetched.data),
        }
        buffer.accept(request, [answer], memoryview(fetched.data), 0, 0.5)
        found += [(record.offset, record.key, record.value) for record in buffer.take(1_000)]
        if fetched.next_offset == fetched.high_watermark:
            assert buffer.positions() == {partition: fetched.high_watermark}
            return found


KEYS = st.sampled_from([None, "a", "b", "c", "a key of more than sixteen bytes"])
RECORDS = st.lists(st.tuples(KEYS, st.sampled_from([None, "x", "y" * 40])), min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(RECORDS, min_size=20, max_size=40)),
    st.tuples(st.just("compact"), st.integers(1, 40)),
    st.tuples(st.just("truncate"), st.floats(0, 0.4)),
    st.tuples(st.just("retain"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([HOUR_MS, DAY_MS, 3 * DAY_MS])),
)


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@given(steps=st.lists(STEPS, min_size=3, max_size=12), data=st.data())
@settings(max_examples=40)
def test_consumer_reads_from_any_offset_what_a_model_says(
    policy: str, steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """The model is every record appended, at its offset. Without compaction, all from the log start on are there; with
    it the newest of each key that is no tombstone, all without a key, and nothing that was not appended."""
    clock = SteppedClock()
    broker = patient_broker(clock)
    topic = new_topic(broker, cleanup_policy=policy, retention_ms=10 * DAY_MS, delete_retention_ms=DAY_MS)
    model: Model = []
    for step, what in steps:
        if step == "append":
            for records in what:
                append(broker, topic, *records, timestamp_ms=clock.now_ms())
                model += [
                    (len(model) + index, key and key.encode(), value and value.encode())
                    for index, (key, value) in enumerate(records)
                ]
        elif step == "compact":
            done = run(broker, topic, keys_max=what, refs_min=2, segment_bytes=3_000)
            assert not done.failures, done.errors
        elif step == "truncate":
            truncate(broker, topic, {0: int(what * len(model))})
        elif step == "retain":
            retain(broker, budget_ms=FOR_EVER)
            sweep(broker, budget_ms=FOR_EVER)
        else:
            clock.time_ms += what
    start = ask(broker, topic, len(model)).log_start_offset
    offset = data.draw(st.integers(start, len(model)), label="offset")
    found = consume(broker, topic, offset)
    wanted = [each for each in model if each[0] >= offset]
    if policy == "delete":
        assert found == wanted
        return
    assert set(found) <= set(wanted)
    assert [each[0] for each in found] == sorted({each[0] for each in found})
    newest = {key: place for place, key, _ in model}
    needed = {each for each in wanted if each[1] is None or (newest[each[1]] == each[0] and each[2] is not None)}
    assert needed <= set(found)
