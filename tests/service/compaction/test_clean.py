"""`cleanup_policy=compact`: the newest record of each key stays where it was, whatever comes between."""

from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.limits import COMPACTION_RUN_PAGES_MAX, MIB, RETENTION_BYTES_MAX, TAIL_ROLL_REFS
from penstock_core.log.topic import TOPIC_BOUNDS
from penstock_core.records.record_batch import Compression
from penstock_service.compaction import clean
from penstock_service.compaction.compact import CompactionResult, compact
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from tests.service.compaction.written_topic import Model, append, keyed, pages_of, put, read
from tests.support.service import SteppedClock, another_instance, ask, new_topic

FOR_EVER, HOUR_MS, DAY_MS = 10**9, 3_600_000, 24 * 3_600_000
SMALL = CompactionSettings(refs_min=4, ref_bytes=2_000, segment_bytes=100_000)


def fill(instance: Instance, topic: str, appends: int = 2 * TAIL_ROLL_REFS) -> None:
    """So many appends of keys of their own, so that what was before is in pages."""
    for number in range(appends):
        append(instance, topic, (f"filler {number}", "x"))


def of(records: Model, *keys: str) -> list[tuple[int, str, str | None]]:
    return [
        (offset, key.decode(), None if value is None else value.decode())
        for offset, key, value in records
        if key is not None and key.decode() in keys
    ]


def run(instance: Instance, topic: str, **changes: Any) -> CompactionResult:
    return compact(instance, topic, 0, replace(SMALL, dirty_share_min=0.0, **changes))


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, cleanup_policy="compact")


def test_newest_record_of_each_key_stays_at_its_offset(instance: Instance, topic: str, clock: SteppedClock) -> None:
    append(instance, topic, ("a", "1"), ("b", "1"), ("a", "2"))
    append(instance, topic, ("b", "2"), (None, "without a key"))
    append(instance, topic, ("a", "3"))
    fill(instance, topic)
    before = read(instance, topic)
    clock.time_ms += 2 * HOUR_MS
    assert run(instance, topic).runs == 1
    after = read(instance, topic)
    assert of(after, "a", "b") == [(3, "b", "2"), (5, "a", "3")]
    assert [each for each in before if each[0] > 2] == after  # nothing else went, and nothing moved
    assert read(instance, topic, 4) == [each for each in before if each[0] >= 4]


def test_records_are_removed_from_within_compressed_batches(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    for compression in Compression:
        name = compression.name
        append(instance, topic, (name, "1"), (f"{name} stays", "1" * 500), (name, "2"), compression=compression)
        append(instance, topic, (name, "3"), compression=compression)
    fill(instance, topic)
    clock.time_ms += 2 * HOUR_MS
    run(instance, topic)
    kept = [(key, value) for _, key, value in read(instance, topic) if key and not key.startswith(b"filler")]
    names = [compression.name.encode() for compression in Compression]
    assert kept == [each for name in names for each in ((name + b" stays", b"1" * 500), (name, b"3"))]


def test_tombstone_stays_for_delete_retention_after_what_it_deletes_is_gone(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance, cleanup_policy="compact", delete_retention_ms=DAY_MS)
    append(instance, topic, ("a", "1"))
    append(instance, topic, ("a", None))
    fill(instance, topic)
    clock.time_ms += 40 * DAY_MS  # however old it is
    run(instance, topic)
    assert of(read(instance, topic), "a") == [(1, "a", None)]
    clock.time_ms += DAY_MS - 1_000
    fill(instance, topic)
    run(instance, topic, age_ms_min=0)
    assert of(read(instance, topic), "a") == [(1, "a", None)]
    fill(instance, topic)
    clock.time_ms += 1_000
    run(instance, topic, age_ms_min=0)
    assert of(read(instance, topic), "a") == []


def test_tombstone_waits_for_a_pass_that_has_come_to_its_end(instance: Instance, clock: SteppedClock) -> None:
    """Passes that die after their swaps never let it go, however long they go on."""
    topic = new_topic(instance, cleanup_policy="compact", delete_retention_ms=DAY_MS)
    append(instance, topic, ("a", "1"))
    append(instance, topic, ("a", None))
    fill(instance, topic)

    class Dying:
        def __getattr__(self, name: str) -> Any:
            if name == "save":
                raise RuntimeError("it dies here")
            return getattr(instance.stores.compaction, name)

    for _ in range(4):
        clock.time_ms += 2 * DAY_MS
        with pytest.raises(RuntimeError):
            run(another_instance(instance, compaction=Dying()), topic)
        assert of(read(instance, topic), "a") == [(1, "a", None)]


def test_keys_that_do_not_fit_into_memory_are_cleaned_pass_by_pass(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    keys = [f"k{number}" for number in range(4 * TAIL_ROLL_REFS)]
    for round_ in range(3):
        for key in keys:
            append(instance, topic, (key, str(round_)))
    fill(instance, topic)
    clock.time_ms += 2 * HOUR_MS
    sizes, left = [], []
    for _ in range(14):
        left.append(run(instance, topic, keys_max=20, refs_min=10_000).are_keys_left)
        sizes.append(len(read(instance, topic)))
    assert (left[0], left[-1]) == (True, False)
    assert [(key, value) for _, key, value in of(read(instance, topic), *keys)] == [(key, "2") for key in keys]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 3


def test_page_with_more_keys_than_memory_holds_fails_by_itself(
    instance: Instance, topic: str, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean, "COMPACTION_PAGE_KEYS", 5)
    for number in range(TAIL_ROLL_REFS):
        append(instance, topic, ("a", str(number)))
    for number in range(TAIL_ROLL_REFS):
        append(instance, topic, (f"k{number}", "x"))
    fill(instance, topic)
    clock.time_ms += 2 * HOUR_MS
    done = run(instance, topic, keys_max=2, merges=False)
    assert (done.are_keys_left, done.failures, len(of(read(instance, topic), "a"))) == (True, 0, 1)
    failed = run(instance, topic, keys_max=2, merges=False)
    assert (failed.failures, failed.runs) == (1, 0)
    assert "[16, 32) has 8 keys or more" in failed.errors[0]
    assert "--keys-max" in failed.errors[0]
    assert run(instance, topic, keys_max=100).failures == 0


def test_row_is_rewritten_by_halves_when_one_swap_cannot_take_it(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    days = COMPACTION_RUN_PAGES_MAX * TAIL_ROLL_REFS
    clock.time_ms = days * 2.0 * DAY_MS
    for day in range(days):  # a backfill: each ref keeps a day of its own
        stays = [] if day < 8 else [(f"account {day}", "x")]  # one ref: new pages end between old ones
        append(instance, topic, *stays, ("balance", str(day)), timestamp_ms=day * 2 * DAY_MS)
    fill(instance, topic, 1)
    before = read(instance, topic)
    done = run(instance, topic, age_ms_min=0, segment_bytes=MIB)
    assert (done.runs, done.refused, done.failures, done.is_finished) == (1, 0, 0, True)
    after = read(instance, topic)
    newest = max(offset for offset, key, _ in before if key == b"balance")
    assert after == [each for each in before if each[1] != b"balance" or each[0] == newest]
    assert run(instance, topic, age_ms_min=0, segment_bytes=MIB).runs == 0, "the pass noted what is clean"


def test_topic_is_left_while_little_is_new(instance: Instance, topic: str, clock: SteppedClock) -> None:
    for _ in range(2):
        fill(instance, topic, 4 * TAIL_ROLL_REFS)
    clock.time_ms += 2 * HOUR_MS
    small = replace(SMALL, ref_bytes=100)  # nothing to merge
    assert compact(instance, topic, 0, small).runs == 1
    fill(instance, topic, TAIL_ROLL_REFS)
    clock.time_ms += 2 * HOUR_MS
    before = pages_of(instance, topic)
    assert compact(instance, topic, 0, small).runs == 0
    assert pages_of(instance, topic) == before


def test_topic_that_is_only_compacted_keeps_records_of_any_age(instance: Instance, clock: SteppedClock) -> None:
    kept = new_topic(instance, "kept", cleanup_policy="compact", retention_ms=HOUR_MS)
    both = new_topic(instance, "both", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    for topic in (kept, both):
        append(instance, topic, ("a", "1"))
    clock.time_ms += 30 * DAY_MS
    retain(instance, budget_ms=FOR_EVER)
    assert len(read(instance, kept)) == 1
    assert ask(instance, both, 1).log_start_offset == 1


def test_retention_by_size_does_not_count_what_compaction_has_removed(
    instance: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOPIC_BOUNDS, "retention_bytes", (1, RETENTION_BYTES_MAX))  # for short logs
    topic = new_topic(instance, cleanup_policy="compact,delete", retention_ms=100 * DAY_MS)
    for number in range(8 * TAIL_ROLL_REFS):
        append(instance, topic, ("a", str(number) * 50), timestamp_ms=clock.now_ms())
    for number in range(3 * TAIL_ROLL_REFS):
        append(instance, topic, (f"filler {number}", "x"), timestamp_ms=clock.now_ms())
    clock.time_ms += 2 * HOUR_MS
    run(instance, topic)
    held = sum(ref.length for page in pages_of(instance, topic) for ref in page.refs)
    found = instance.topic_cache.read_through(topic)
    instance.stores.topics.replace(found, replace(found, config=replace(found.config, retention_bytes=held)))
    instance.topic_cache.forget(topic)
    assert retain(instance, budget_ms=FOR_EVER).refs_expired == 0


def test_log_start_rises_over_emptied_offsets_no_sooner_than_over_their_records(
    instance: Instance, clock: SteppedClock
) -> None:
    """Neighbouring batches that lost all records become one empty batch, which has the time of the newest. A consumer
    that has read up to the last of them is not told that the log begins behind it."""
    topic = new_topic(instance, cleanup_policy="compact,delete", retention_ms=3 * DAY_MS)
    for _ in range(2):
        for number in range(TAIL_ROLL_REFS):
            append(instance, topic, ("a", str(number)), timestamp_ms=clock.now_ms())
        clock.time_ms += 2 * DAY_MS
    for _ in range(TAIL_ROLL_REFS):
        append(instance, topic, ("a", "newest"), timestamp_ms=clock.now_ms())
    run(instance, topic, age_ms_min=0)
    assert len(read(instance, topic)) == 1
    retain(instance, budget_ms=FOR_EVER)
    assert ask(instance, topic, 3 * TAIL_ROLL_REFS).log_start_offset <= TAIL_ROLL_REFS
    clock.time_ms += 3 * DAY_MS + HOUR_MS
    retain(instance, budget_ms=FOR_EVER)
    assert ask(instance, topic, 3 * TAIL_ROLL_REFS).log_start_offset == 3 * TAIL_ROLL_REFS


def test_batch_that_its_producer_built_wrongly_is_left_whole(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    bad = bytearray(keyed(("a", "1"), ("b", "1")))
    bad[61:] = bytes(len(bad) - 61)
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    append(instance, topic, ("c", "1"))
    put(instance, topic, bytes(bad))
    append(instance, topic, ("c", "2"))
    fill(instance, topic)
    clock.time_ms += 2 * HOUR_MS
    done = run(instance, topic)
    assert (done.runs, done.failures) == (1, 0)
    assert done.batches_left_whole == 1
    assert of(read(instance, topic, 3), "c") == [(3, "c", "2")]
