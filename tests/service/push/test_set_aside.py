"""Records that no delivery can hold, and reads of which deliveries die: neither stops a subscription for good."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicName
from penstock_core.limits import PUSH_PAYLOAD_BYTES_MAX, PUSH_READS_MAX, PUSH_VISIBILITY_MS
from penstock_core.push.targets.target import TopicTarget
from penstock_core.records.codec import NewRecord, decode
from penstock_service.push import copy_to_topic
from penstock_service.push.parallel.parallel_group import put_parallel_group
from penstock_service.share.batches.decode_batches import decode_batches
from tests.support.push_deliveries import Deliveries
from tests.support.service import Killed, ask, new_topic

LARGE = NewRecord(1, None, bytes(PUSH_PAYLOAD_BYTES_MAX))
MODES = ("ordered", "parallel")
READ = "penstock_service.push.read_ahead.decode_batches"


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
    placed = copy_to_topic._placed
    monkeypatch.setattr(
        copy_to_topic,
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
