"""A batch that is not full waits for its window, and goes as soon as it is full."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.limits import PUSH_VISIBILITY_MS, PUSH_WINDOW_LOOK_MS, PUSH_WINDOW_LOOKS_MAX
from penstock_core.push.batch import Answer, Answered, PushBatch
from penstock_core.push.lane import NO_MESSAGE
from penstock_core.records.codec import NewRecord
from penstock_service.push.deliver import Ending
from tests.support.push_deliveries import Deliveries
from tests.support.service import Counted, with_stores

WINDOW_MS = 300_000


def waiting(window_ms: int = WINDOW_MS, **settings: Any) -> Deliveries:
    """A subscription at the end of its topic, whose batches wait."""
    deliveries = Deliveries(settings={"batch_window_ms": window_ms, **settings})
    deliveries.run()
    deliveries.endings.clear()
    return deliveries


def play(deliveries: Deliveries, times_ms: Iterable[int], until_ms: int) -> list[int]:
    """Append a record at each time, and deliver all the while. Gives the time of each batch. The first time is 0."""
    start_ms, sent_ms = deliveries.clock.now_ms(), list[int]()

    def answer(_batch: PushBatch) -> Answer:
        sent_ms.append(deliveries.clock.now_ms() - start_ms)
        return Answered()

    deliveries.answer = answer
    for time_ms in [*times_ms, until_ms]:
        while (visible_ms := deliveries.queue.next_visible_ms) is not None and visible_ms < start_ms + time_ms:
            deliveries.clock.time_ms = max(deliveries.clock.time_ms, visible_ms)
            deliveries.run_once()
        deliveries.clock.time_ms = max(deliveries.clock.time_ms, start_ms + time_ms)
        if time_ms < until_ms:
            deliveries.append("a record")
    return sent_ms


def test_batch_goes_as_soon_as_it_has_all_its_records() -> None:
    deliveries = waiting(batch_records=3)
    assert play(deliveries, [0, 1, 2], 1_000) == [2]
    assert deliveries.batches == [[0, 1, 2]]


def test_burst_in_the_middle_of_a_window_is_seen_after_no_more_than_the_time_since_it_began() -> None:
    deliveries = waiting(batch_records=50)
    burst = [*range(20_000, 20_050)]
    [sent_ms] = play(deliveries, [0, 100, 5_000, *burst], WINDOW_MS)
    assert sent_ms <= 2 * 20_050
    assert deliveries.batches == [[*range(50)]]


def test_batch_goes_as_soon_as_its_bytes_are_all_that_a_delivery_may_have() -> None:
    deliveries = waiting(batch_records=10_000)
    deliveries.append(NewRecord(1, None, bytes(900_000)))
    assert deliveries.run_once() is Ending.KEEP
    deliveries.append(*(NewRecord(1, None, bytes(900_000)) for _ in range(6)))
    deliveries.run(for_ms=1)
    assert sum(map(len, deliveries.batches)) >= 4


def test_batch_that_fills_at_a_steady_rate_goes_soon_after_it_is_full() -> None:
    """A record each 500 ms: 100 are there after 50 s."""
    deliveries = waiting(batch_records=100)
    sent_ms = play(deliveries, range(0, 60_000, 500), 60_000)
    assert [len(batch) for batch in deliveries.batches] == [100]
    assert sent_ms[0] <= 49_500 + 2 * PUSH_WINDOW_LOOK_MS


def test_batch_that_never_fills_goes_with_its_window_whoever_appends() -> None:
    deliveries = waiting(batch_records=10_000, window_ms=30_000)
    assert play(deliveries, [0], 60_000) == [30_000]
    deliveries = waiting(batch_records=10_000, window_ms=30_000)
    [sent_ms] = play(deliveries, range(0, 29_000, 500), 60_000)
    assert 30_000 <= sent_ms < 31_000


@pytest.mark.parametrize(("window_ms", "runs_max"), [(500, 6), (5_000, 12), (60_000, 20), (WINDOW_MS, 26)])
def test_looks_cost_a_bounded_number_of_runs_messages_and_calls(window_ms: int, runs_max: int) -> None:
    """Records come all the time, and the batch never is full."""
    deliveries = waiting(batch_records=10_000, window_ms=window_ms)
    counts: Counter[str] = Counter()
    stores = deliveries.instance.stores
    counted = {name: Counted(getattr(stores, name), name, counts) for name in ("push", "deliveries")}
    counted["zones"] = [Counted(zone, "zone", counts) for zone in stores.zones]  # type: ignore[assignment] # a list
    deliveries.instance = with_stores(deliveries.instance, **counted)
    [sent_ms] = play(deliveries, range(0, window_ms, window_ms // 200), window_ms + 2_000)
    assert window_ms <= sent_ms <= window_ms + 1_000
    assert len(deliveries.endings) <= runs_max <= 2 * PUSH_WINDOW_LOOKS_MAX + 4
    assert counts["deliveries.send"] <= PUSH_WINDOW_LOOKS_MAX + 4
    assert counts["push.put_delivery"] <= PUSH_WINDOW_LOOKS_MAX + 2


def test_records_that_the_filter_does_not_take_fill_no_batch() -> None:
    deliveries = waiting(batch_records=2, filter={"kind": ["a"]})
    for kind in ("a", "b", "b", "b"):
        deliveries.append(NewRecord(1, None, b"v", [("kind", kind.encode())]))
    deliveries.run(for_ms=10_000)
    assert deliveries.batches == []
    deliveries.append(NewRecord(1, None, b"v", [("kind", b"a")]))
    deliveries.run(for_ms=30_000)
    assert deliveries.batches == [[0, 4]]


def test_many_messages_in_a_quiet_time_leave_one_for_the_look() -> None:
    """Another subscription of the topic wakes this one, too."""
    deliveries = waiting(batch_records=100)
    deliveries.append("a")
    deliveries.run_once()
    deliveries.clock.time_ms += 20_000
    deliveries.append("b")
    deliveries.run_once()
    deliveries.append("c")
    for _ in range(5):
        deliveries.queue.send([deliveries.message()])
    deliveries.run(for_ms=1_000)
    lane = deliveries.lane()
    assert lane is not None
    assert NO_MESSAGE not in (lane.sleeper, lane.looker)
    assert len(deliveries.queue.messages) == 2


def test_window_survives_a_death_and_its_message() -> None:
    deliveries = waiting(batch_records=3)
    deliveries.append("a")
    deliveries.run_once()
    deliveries.append("b", "c")
    deliveries.die()
    deliveries.run()
    assert deliveries.batches == [[0, 1, 2], [0], [1, 2]], "after a death, one stored batch comes first"


def test_record_behind_a_window_that_kills_each_delivery_is_counted_as_a_failure() -> None:
    deliveries = waiting(window_ms=2_000, batch_records=3)
    deliveries.append("a")
    deliveries.run_once()
    deliveries.clock.time_ms += 2_000
    for attempts in (0, 1, 2):
        deliveries.die()
        state = deliveries.state()
        assert state is not None
        assert (0 if state.trouble is None else state.trouble.attempts) == attempts
        deliveries.clock.time_ms += PUSH_VISIBILITY_MS


def test_window_of_one_partition_does_not_hold_its_neighbour() -> None:
    deliveries = Deliveries(partitions=2, settings={"batch_window_ms": WINDOW_MS, "batch_records": 2})
    deliveries.run()
    deliveries.append("a", partition=0)
    deliveries.run_once()
    deliveries.append("b", "c", partition=1)
    deliveries.run(for_ms=1)
    assert deliveries.batches == [[0, 1]]
    assert deliveries.is_armed(0)
    deliveries.append("d", partition=0)
    deliveries.run(for_ms=1)
    assert deliveries.batches == [[0, 1], [0, 1]]


def test_alteration_that_takes_the_window_away_sends_the_batch() -> None:
    deliveries = waiting(batch_records=3)
    deliveries.append("a")
    deliveries.run_once()
    deliveries.change(config=replace(deliveries.subscription.config, batch_window_ms=0))
    deliveries.start()
    deliveries.run(for_ms=1)
    assert deliveries.batches == [[0]]
