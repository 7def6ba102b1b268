"""Records that no delivery can hold, and reads of which deliveries die: neither stops a subscription for good."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.limits import (
    BATCH_DECODED_BYTES_MAX,
    DEAD_LETTER_BURIALS_MAX,
    DEAD_LETTERS_AT_ONCE,
    PUSH_PAYLOAD_BYTES_MAX,
    PUSH_READS_MAX,
    PUSH_VISIBILITY_MS,
)
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.targets.target import TopicTarget
from penstock_core.records.codec import NewRecord, Record, decode
from penstock_core.records.partitioner import partition_for_key
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.zones.zone_state import Acks
from penstock_service.push import bury
from penstock_service.push.parallel.parallel_group import put_parallel_group
from penstock_service.records.produce import produce
from penstock_service.share.batches.decode_batches import decode_batches
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from tests.support.interleaving import catch_kill, killed_at
from tests.support.poison import bomb
from tests.support.push_deliveries import Deliveries, refusing
from tests.support.service import Intercepted, Killed, another_instance, ask, entry, key_of, new_topic, with_stores

REFUSED = Failed(failure=Failure.REFUSAL, error="it does not fit")
LARGE = NewRecord(1, None, bytes(PUSH_PAYLOAD_BYTES_MAX))
MODES = ("ordered", "parallel")
READ = "penstock_service.push.read_ahead.decode_batches"


def burying(partitions: int = 1, **settings: Any) -> Deliveries:
    """A subscription whose records go to the dead letters at their second failure."""
    all_settings = {"dead_letter_topic": "dead", "attempts_max": 1, "patience_ms": 0, "batch_records": 1, **settings}
    return Deliveries(partitions=partitions, settings=all_settings)


def letters(deliveries: Deliveries, partition: int = 0) -> list[Record]:
    return [*decode(ask(deliveries.instance, "dead", partition=partition).data)]


def test_dead_letter_is_the_record_and_tells_its_way() -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    deliveries.answer = refusing([0], REFUSED)
    deliveries.append(NewRecord(77, b"k", b"v", [("a", b"1")]))
    deliveries.run()
    [letter] = letters(deliveries)
    assert (letter.timestamp, letter.key, letter.value) == (77, b"k", b"v")
    headers = {name.removeprefix("penstock.dead-letter."): value for name, value in letter.headers}
    assert headers.pop("time_ms") is not None
    assert headers == {
        "a": b"1",
        "topic": b"orders",
        "partition": b"0",
        "offset": b"0",
        "subscription": b"packing",
        "reason": b"it does not fit",
        "deliveries": b"2",
    }


def test_letter_names_a_record_that_no_batch_can_hold_and_its_neighbours_move() -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    deliveries.answer = lambda _: REFUSED
    deliveries.append("before")
    largest = bomb(BATCH_DECODED_BYTES_MAX - 100)  # our headers do not fit with it
    produce(deliveries.instance, [entry("orders", 0, largest)], Acks.QUORUM).all_ok()
    deliveries.append("behind")
    deliveries.run()
    found = [(each.value, dict(each.headers)[f"{HEADER_PREFIX}reason"]) for each in letters(deliveries)]
    assert found == [(b"before", b"it does not fit"), (None, b"too_large"), (b"behind", b"it does not fit")]
    assert deliveries.counts()["dead_letters_too_large"] == 1


@pytest.mark.parametrize("burials", [DEAD_LETTER_BURIALS_MAX - 1, DEAD_LETTER_BURIALS_MAX])
def test_record_in_a_circle_is_passed_over_after_so_many_burials(burials: int) -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    deliveries.answer = lambda _: REFUSED
    headers = [(f"{HEADER_PREFIX}topic", b"orders"), (f"{HEADER_PREFIX}burials", str(burials).encode())]
    deliveries.append(NewRecord(1, None, b"again", headers), "behind")
    deliveries.run()
    is_circle = burials == DEAD_LETTER_BURIALS_MAX
    assert [each.value for each in letters(deliveries)] == [b"again", b"behind"][is_circle:]
    assert deliveries.counts().get("dead_letter_loops", 0) == is_circle
    assert not deliveries.queue.messages


def test_dead_letters_lie_in_the_partition_of_their_number() -> None:
    deliveries = burying(partitions=3)
    new_topic(deliveries.instance, "dead", 2)
    deliveries.answer = lambda _: REFUSED
    for partition in range(3):
        deliveries.append(str(partition), partition=partition)
    deliveries.run()
    assert sorted(record.value or b"" for record in letters(deliveries)) == [b"0", b"2"]
    assert [record.value for record in letters(deliveries, 1)] == [b"1"]


def test_many_records_are_buried_in_bounded_transactions() -> None:
    deliveries = burying(batch_records=250, bisect=False)
    new_topic(deliveries.instance, "dead")
    deliveries.answer = refusing(range(250), REFUSED)
    deliveries.append_many(250)
    moves: list[int] = []

    def move(do: Any, wanted: Any) -> Any:
        moves.append(sum(ref.record_count for refs in wanted.refs.values() for ref in refs))
        return do(wanted)

    transactions = Intercepted(deliveries.instance.stores.transactions, move=move)
    deliveries.instance = with_stores(deliveries.instance, transactions=transactions)
    deliveries.run()
    assert moves == [DEAD_LETTERS_AT_ONCE, DEAD_LETTERS_AT_ONCE, 50]
    assert [record.value for record in letters(deliveries)] == [str(each).encode() for each in range(250)]


def test_answer_that_was_lost_buries_a_record_once() -> None:
    """The transaction's own first attempt was applied, so its repeat is refused."""
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    deliveries.answer = refusing([0], REFUSED)
    deliveries.append("bad", "good")

    def move(do: Any, wanted: Any) -> Any:
        assert do(wanted)
        return do(wanted)

    transactions = Intercepted(deliveries.instance.stores.transactions, move=move)
    deliveries.instance = with_stores(deliveries.instance, transactions=transactions)
    deliveries.run()
    assert [record.value for record in letters(deliveries)] == [b"bad"]
    assert deliveries.batches[-1] == [1]
    assert "push_delivery_failed" not in deliveries.counts()


def test_delivery_that_was_overtaken_buries_nothing() -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    deliveries.answer = refusing([0], REFUSED)
    deliveries.append("bad")
    overtaken: list[bool] = []

    def move(do: Any, wanted: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            [commit] = wanted.deliveries
            assert do(wanted)
            later = commit.state
            assert deliveries.instance.stores.push.put_delivery(commit.key, replace(later, version=later.version + 1))
        return do(wanted)

    transactions = Intercepted(deliveries.instance.stores.transactions, move=move)
    deliveries.instance = with_stores(deliveries.instance, transactions=transactions)
    deliveries.run()
    assert [record.value for record in letters(deliveries)] == [b"bad"]
    assert deliveries.counts()["push_delivery_failed"] == 1


@pytest.mark.parametrize("was_there", [False, True])
def test_records_wait_for_a_missing_dead_letter_topic(was_there: bool) -> None:
    deliveries = burying(backoff_ms_max=600_000)
    if was_there:
        new_topic(deliveries.instance, "dead")
        deliveries.instance.topic_cache.get("dead")
        delete_topic(deliveries.instance, "dead")
    deliveries.answer = refusing([0], REFUSED)
    deliveries.append("bad", "good")
    deliveries.run(for_ms=100_000)
    assert deliveries.counts()["push_dead_letters_stuck"] == 1
    new_topic(deliveries.instance, "dead")
    deliveries.run()
    assert [record.value for record in letters(deliveries)] == [b"bad"]
    assert deliveries.batches[-1] == [1]


def test_each_dead_letter_tells_its_own_reason() -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")

    def answer(batch: PushBatch) -> Answer:
        [sent] = batch.records
        return Failed(failure=Failure.REFUSAL, error=f"{sent.record.value!r} does not fit")

    deliveries.answer = answer
    deliveries.append("a", "b", "c")
    deliveries.run()
    found = {each.value: dict(each.headers)[f"{HEADER_PREFIX}reason"] for each in letters(deliveries)}
    assert found == {value: f"{value!r} does not fit".encode() for value in (b"a", b"b", b"c")}


@pytest.mark.parametrize("is_named", [True, False])
def test_dead_letter_tells_a_reason_when_the_target_gives_none(is_named: bool) -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    place = (key_of(deliveries.instance, "orders"), Offset(0))
    named = Answered(failed=frozenset({place}), error="")
    deliveries.answer = lambda _: named if is_named else Failed(failure=Failure.REFUSAL, error=" ")
    deliveries.append("bad")
    deliveries.run()
    [letter] = letters(deliveries)
    assert dict(letter.headers)["penstock.dead-letter.reason"] == b"refusal, without a word of the target"


def test_dead_letter_has_the_reason_deliveries_when_all_its_deliveries_died() -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead")
    deliveries.append("a")
    for _ in range(3):
        deliveries.die()
        deliveries.clock.time_ms += PUSH_VISIBILITY_MS
    deliveries.run()
    [letter] = letters(deliveries)
    assert dict(letter.headers)["penstock.dead-letter.reason"] == b"deliveries"


def test_dead_letters_open_a_generation_that_an_operator_left() -> None:
    deliveries = burying()
    new_topic(deliveries.instance, "dead", ordering_on_change="wait")
    deliveries.answer = lambda _: REFUSED
    deliveries.append("a")
    deliveries.run()
    with catch_kill():
        alter_topic(killed_at(another_instance(deliveries.instance), 4, is_applied=True), "dead", 2, {})
    deliveries.append(NewRecord(1, b"k", b"b", ()))
    deliveries.run()
    assert [record.value for record in letters(deliveries)] == [b"a"]
    assert [record.value for record in letters(deliveries, 1 + partition_for_key(b"k", 2))] == [b"b"]
    assert deliveries.instance.topic_cache.read_through("dead").generations == (0, 1)


def subscribed(mode: str, **settings: Any) -> Deliveries:
    deliveries = Deliveries(settings={"mode": mode, **settings})
    if mode == "parallel":
        put_parallel_group(deliveries.instance, deliveries.subscription, [])
    return deliveries


def reasons(deliveries: Deliveries) -> list[str]:
    letters = decode(ask(deliveries.instance, "dead").data)
    return [(dict(each.headers)["penstock.dead-letter.reason"] or b"").decode() for each in letters]


@pytest.mark.parametrize("mode", MODES)
def test_record_that_is_too_large_is_a_dead_letter_at_once(mode: str) -> None:
    deliveries = subscribed(mode, dead_letter_topic="dead")
    new_topic(deliveries.instance, "dead")
    deliveries.append("a", LARGE, "b")
    deliveries.run(for_ms=60_000)
    assert sorted(offset for batch in deliveries.batches for offset in batch) == [0, 2]
    assert deliveries.counts()["push_too_large"] == 1
    [reason] = reasons(deliveries)
    assert reason.startswith("too_large: it has 8,388,910 bytes")
    assert not deliveries.queue.messages


@pytest.mark.parametrize("mode", MODES)
def test_record_that_is_too_large_is_passed_over_where_no_topic_takes_it(mode: str) -> None:
    deliveries = subscribed(mode)
    deliveries.append(LARGE, "b", LARGE)
    deliveries.run(for_ms=60_000)
    assert deliveries.batches == [[1]]
    assert deliveries.counts()["push_too_large"] == 2
    assert not deliveries.queue.messages


def test_copy_that_no_batch_holds_stops_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    deliveries = Deliveries(target=TopicTarget(topic=TopicName("copies")))
    new_topic(deliveries.instance, "copies")
    placed = bury._placed
    monkeypatch.setattr(
        bury,
        "_placed",
        lambda topic, some, number, *, by_key: (
            None if any(each.value == b"large" for each in some) else placed(topic, some, number, by_key=by_key)
        ),
    )
    deliveries.append("a", "large", "b")
    deliveries.run(for_ms=60_000)
    assert [each.value for each in decode(ask(deliveries.instance, "copies").data)] == [b"a", b"b"]
    assert deliveries.counts()["push_too_large"] == 1


def test_read_that_kills_each_delivery_is_counted_before_it_and_its_batch_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deliveries = Deliveries()
    deliveries.append("a", "b")
    deliveries.append("c")
    deaths = 0

    def decode_all(batches: Any, *arguments: Any) -> Any:
        if batches[0].base_offset == 0:
            raise Killed
        return decode_batches(batches, *arguments)

    monkeypatch.setattr(READ, decode_all)
    while not deliveries.batches and deaths < 20:
        try:
            deliveries.run_once()
        except Killed:
            deaths += 1
            deliveries.clock.time_ms += PUSH_VISIBILITY_MS
            state = deliveries.state()
            told = None if state is None else state.trouble
            assert (0 if told is None else told.reads) == deaths - 1
            assert deaths == 1 or (told is not None and told.error == "a delivery died while it read")
    assert deaths == PUSH_READS_MAX + 1
    assert deliveries.counts()["push_undecodable"] == 1
    deliveries.run()
    assert deliveries.batches == [[2]]
    state = deliveries.state()
    assert state is not None
    assert (state.offset, state.trouble) == (3, None)


def test_delivery_after_a_death_reads_one_batch_first(monkeypatch: pytest.MonkeyPatch) -> None:
    deliveries = Deliveries()
    for value in "abc":
        deliveries.append(value)
    deliveries.die()
    deliveries.clock.time_ms += PUSH_VISIBILITY_MS
    read = list[int]()

    def decode_all(batches: Any, *arguments: Any) -> Any:
        read.append(len(batches))
        return decode_batches(batches, *arguments)

    monkeypatch.setattr(READ, decode_all)
    deliveries.run()
    assert read == [1, 2]
    assert deliveries.batches == [[0, 1, 2], [0], [1, 2]]


def test_read_that_fails_after_deaths_takes_no_neighbours_along(monkeypatch: pytest.MonkeyPatch) -> None:
    deliveries = Deliveries()
    for value in "abc":
        deliveries.append(value)

    def decode_lethal(batches: Any, *arguments: Any) -> Any:
        if batches[0].base_offset == 0:
            raise Killed
        return decode_batches(batches, *arguments)

    monkeypatch.setattr(READ, decode_lethal)
    for _ in range(PUSH_READS_MAX + 1):
        with pytest.raises(Killed):
            deliveries.run_once()
        deliveries.clock.time_ms += PUSH_VISIBILITY_MS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock_service.push.read_ahead.read_batches", unavailable)
        deliveries.run_once()  # storage fails the read that would pass over the batch, and the delivery ends well
    deliveries.run()
    assert deliveries.counts()["push_undecodable"] == 1
    assert deliveries.batches == [[1, 2]]


def unavailable(*_: object) -> None:
    raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no zone answers")
