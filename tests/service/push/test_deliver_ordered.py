import math
from typing import Any

import pytest

from penstock_core.limits import PUSH_EVIDENCE_MARGIN_MS, PUSH_UNREADABLE_PAUSE_MS
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.records.codec import NewRecord
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.deliver import Ending
from penstock_service.topics.alter_topic import truncate
from tests.support.push_deliveries import Deliveries, refusing
from tests.support.service import UNAVAILABLE, Intercepted, new_topic, with_stores

REFUSED = Failed(failure=Failure.REFUSAL, error="it does not fit")
DEAD: dict[str, Any] = {"dead_letter_topic": "dead"}


def with_dead_letters(**settings: Any) -> Deliveries:
    deliveries = Deliveries(settings={**DEAD, **settings})
    new_topic(deliveries.instance, "dead")
    return deliveries


def handled(deliveries: Deliveries, poison: set[int]) -> list[int]:
    """The offsets that the target has handled, each at its first time."""
    good = [offset for batch in deliveries.batches if not poison & {*batch} for offset in batch]
    return list(dict.fromkeys(good))


def test_poison_record_is_buried_and_all_others_are_handled_in_order() -> None:
    deliveries = with_dead_letters()
    deliveries.answer = refusing([42], REFUSED)
    deliveries.append_many(300)
    deliveries.run()
    assert handled(deliveries, {42}) == [each for each in range(300) if each != 42]
    assert deliveries.counts()["push_dead_lettered"] == 1
    state = deliveries.state()
    assert state is not None
    assert state.dead_lettered == 1
    assert len(deliveries.batches) <= 3 + 5 + math.ceil(math.log2(100)) + 5 + 1
    assert not deliveries.queue.messages


def test_deletion_between_two_reads_is_no_beginning_at_the_start_of_the_log() -> None:
    deliveries = Deliveries()
    deliveries.append("old")

    def deleted(original: Any, keys: Any) -> Any:
        delete_subscription(deliveries.instance, deliveries.subscription.name)
        return original(keys)

    push = Intercepted(deliveries.instance.stores.push, find_deliveries=deleted)
    deliveries.run_once(with_stores(deliveries.instance, push=push))
    assert deliveries.batches == []


def test_attempts_are_told_to_the_target() -> None:
    deliveries = with_dead_letters(batch_records=1, patience_ms=0, attempts_max=3)
    attempts: list[int] = []

    def answer(batch: PushBatch) -> Answer:
        attempts.append(batch.attempt)
        return REFUSED

    deliveries.answer = answer
    deliveries.append("a")
    deliveries.run()
    assert attempts == [1, 2, 3]


def test_success_of_another_partition_is_evidence_for_the_first_record() -> None:
    deliveries = Deliveries(partitions=2, settings={**DEAD, "batch_records": 1})
    new_topic(deliveries.instance, "dead")
    deliveries.answer = lambda batch: REFUSED if batch.records[0].key.partition == 0 else Answered()
    deliveries.append("poison", partition=0)
    deliveries.run(for_ms=PUSH_EVIDENCE_MARGIN_MS + 10_000)
    assert deliveries.counts().get("push_dead_lettered", 0) == 0
    deliveries.append("good", partition=1)
    deliveries.run(for_ms=60_000)
    assert deliveries.counts()["push_dead_lettered"] == 1


def test_success_that_began_before_the_failure_is_no_evidence() -> None:
    """An outage begins while the target still works on a batch of another partition."""
    deliveries = Deliveries(partitions=2, settings={**DEAD, "batch_records": 1, "concurrency": 2})
    new_topic(deliveries.instance, "dead")

    def answer(batch: PushBatch) -> Answer:
        if batch.records[0].key.partition == 1:
            deliveries.run_once()
            deliveries.clock.time_ms += 2 * PUSH_EVIDENCE_MARGIN_MS
            return Answered()
        return REFUSED

    deliveries.answer = answer
    deliveries.run()
    deliveries.append("slow", partition=1)
    deliveries.append("poison", partition=0)
    deliveries.run(for_ms=60_000)
    assert deliveries.counts().get("push_dead_lettered", 0) == 0
    deliveries.run()
    assert deliveries.counts()["push_dead_lettered"] == 1, "after the patience"


@pytest.mark.parametrize("names_records", [False, True])
def test_burst_with_poison_in_it_drains_without_patience(names_records: bool) -> None:
    """Other records succeed in each second, so no poison record holds its partition for the patience."""
    deliveries = Deliveries(partitions=8, settings={**DEAD, "concurrency": 8})
    new_topic(deliveries.instance, "dead")
    poison = {(partition, 7 * partition) for partition in range(8)}

    def answer(batch: PushBatch) -> Answer:
        deliveries.clock.time_ms += 200
        bad = [each.place for each in batch.records if (each.key.partition, each.record.offset) in poison]
        return REFUSED if bad and not names_records else Answered(failed=frozenset(bad), error="no")

    deliveries.answer = answer
    for partition in range(8):
        deliveries.append_many(125, partition)
    deliveries.run(for_ms=120_000)
    assert deliveries.counts()["push_dead_lettered"] == 8
    assert not deliveries.queue.messages


@pytest.mark.parametrize(("failed", "is_proof"), [([0], False), ([0, 1, 2, 3], False), ([0, 2], True)])
def test_answer_that_leaves_out_a_record_between_two_is_the_proof_that_the_target_works(
    failed: list[int], is_proof: bool
) -> None:
    """A handler that stops at its first failure names it alone, or all from it on."""
    deliveries = with_dead_letters()

    def answer(batch: PushBatch) -> Answer:
        there = [each.record.offset for each in batch.records]
        return Answered(failed=frozenset(map(deliveries.place, {*failed} & {*there})), error="no")

    deliveries.answer = answer
    deliveries.append_many(4)
    deliveries.run(for_ms=60_000)
    assert (deliveries.counts().get("push_dead_lettered", 0) > 0) is is_proof


def test_outage_buries_nothing_and_its_end_is_found() -> None:
    deliveries = with_dead_letters(backoff_ms_max=60_000)
    begin_ms = deliveries.clock.now_ms()
    deliveries.answer = lambda _: Answered() if deliveries.clock.now_ms() > begin_ms + 600_000 else REFUSED
    deliveries.append_many(500)
    deliveries.run()
    assert deliveries.counts().get("push_dead_lettered", 0) == 0
    state = deliveries.state()
    assert state is not None
    assert (state.offset, state.trouble) == (500, None)


def test_named_record_fails_alone_and_those_before_it_are_done() -> None:
    deliveries = with_dead_letters()

    def answer(batch: PushBatch) -> Answer:
        places = {each.place for each in batch.records} & {deliveries.place(30), deliveries.place(60)}
        return Answered(failed=frozenset(places), error="2 of 100")

    deliveries.answer = answer
    deliveries.append_many(100)
    deliveries.run()
    assert deliveries.batches[0] == [*range(100)]
    assert deliveries.batches[1:5] == [[30]] * 4
    assert deliveries.batches[5] == [*range(31, 100)]
    counts = deliveries.counts()
    assert (counts["push_dead_lettered"], counts["records_pushed"]) == (2, 98)


def test_records_that_the_filter_does_not_take_are_passed_over() -> None:
    deliveries = Deliveries(settings={"filter": {"kind": ["a"]}})
    deliveries.append(*(_record(kind) for kind in "abba"))
    deliveries.append(*(_record("b") for _ in range(5)))
    deliveries.run()
    assert deliveries.batches == [[0, 3]]
    state = deliveries.state()
    assert state is not None
    assert state.offset == 9


def test_records_that_were_removed_before_their_delivery_count_as_expired() -> None:
    deliveries = Deliveries(settings={"batch_records": 10})
    deliveries.append_many(10)
    deliveries.run()
    deliveries.change(is_paused=True)
    deliveries.append_many(20)
    truncate(deliveries.instance, "orders", {0: 25})
    deliveries.change(is_paused=False)
    deliveries.start()
    deliveries.run()
    assert deliveries.batches[1:] == [[*range(25, 30)]]
    assert deliveries.counts()["push_expired"] == 15


def test_window_waits_for_more_records_and_a_full_batch_does_not_wait() -> None:
    deliveries = Deliveries(settings={"batch_window_ms": 30_000, "batch_records": 3})
    deliveries.run()
    deliveries.append("a")
    assert deliveries.run_once() is Ending.KEEP
    deliveries.append("b")
    deliveries.run(for_ms=29_000)
    assert deliveries.batches == []
    deliveries.run()
    assert deliveries.batches == [[0, 1]]
    deliveries.append("c", "d", "e")
    assert deliveries.run_once() is Ending.DELETE
    assert deliveries.batches == [[0, 1], [2, 3, 4]]


def test_partition_rests_before_a_record_that_cannot_be_read() -> None:
    deliveries = Deliveries()
    deliveries.append("a")

    def refuse(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    zones = [Intercepted(zone, get=refuse) for zone in deliveries.instance.stores.zones]
    broken = with_stores(deliveries.instance, zones=zones)
    assert deliveries.run_once(broken) is Ending.KEEP
    assert deliveries.counts()["push_unreadable"] == 1
    lane = deliveries.lane()
    assert lane is not None
    assert lane.due_ms == deliveries.clock.now_ms() + PUSH_UNREADABLE_PAUSE_MS
    deliveries.run()
    assert deliveries.batches == [[0]]


def test_batch_that_is_too_large_for_an_event_is_cut() -> None:
    deliveries = Deliveries()
    deliveries.append(*(NewRecord(1, None, bytes(900_000)) for _ in range(8)))
    deliveries.run()
    assert [offset for batch in deliveries.batches for offset in batch] == [*range(8)]
    assert max(map(len, deliveries.batches)) <= 5


@pytest.mark.parametrize("failure", [Failure.REFUSAL, Failure.BROKEN, Failure.AWAY])
def test_failures_are_counted_and_logged_with_their_place(failure: Failure) -> None:
    deliveries = Deliveries()
    deliveries.answer = lambda _: Failed(failure=failure, error="why")
    deliveries.append("a")
    deliveries.run_once()
    counts, entries = deliveries.instance.telemetry.take()
    assert counts["push_failed"] == 1
    assert "records_pushed" not in counts
    [(name, facts)] = [entry for entry in entries if entry[0] == "push_failed"]
    assert (name, facts["subscription"], facts["offset"], facts["kind"], facts["error"]) == (
        "push_failed", "packing", 0, failure.value, "why",
    )  # fmt: skip


def _record(kind: str) -> NewRecord:
    return NewRecord(1, None, b"v", [("kind", kind.encode())])
