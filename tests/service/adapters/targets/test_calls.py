"""Deliveries of many calls: the first failure of a call, and the time."""

from collections.abc import Sequence

from penstock_core.push.batch import Answered, Failed, Failure
from penstock_service.adapters.targets.calls import EntrySizes, Refusals
from tests.service.adapters.targets.entry_service import HastyClock, entry_calls
from tests.support.push_records import StoredRecord, orders

BATCH = orders(*(StoredRecord(offset) for offset in range(200)))
ENTRIES = EntrySizes(sizes=[1] * 200, bytes_max=100, service="It")


class Calls:
    def __init__(self, failing: int | None = None) -> None:
        self.first: list[int] = []
        self._failing = failing

    def __call__(self, indices: Sequence[int]) -> Refusals | Failed:
        self.first.append(indices[0])
        if self._failing in indices:
            return Failed(failure=Failure.AWAY, error="throttled")
        return {index: "bad" for index in indices if index % 100 == 7}


def test_all_entries_are_sent_and_those_refused_are_named() -> None:
    calls = Calls()
    found = entry_calls().send(BATCH, ENTRIES, calls, 50_000)
    assert calls.first == [*range(0, 200, 10)]
    assert found == Answered(
        failed=frozenset({BATCH.records[7].place, BATCH.records[107].place}),
        error="2 of 200 records were refused; orders-0 at offset 7: bad",
    )


def test_call_that_fails_ends_the_delivery_after_those_beside_it() -> None:
    calls = Calls(failing=15)
    found = entry_calls().send(BATCH, ENTRIES, calls, 50_000)
    assert found == Failed(failure=Failure.AWAY, error="throttled")
    assert calls.first == [*range(0, 80, 10)]


def test_delivery_whose_time_is_over_may_be_the_fault_of_its_records() -> None:
    """A batch that never ends in time would come again for ever if that were an outage. So it is halved at last."""
    calls = Calls()
    found = entry_calls(HastyClock(20_000)).send(BATCH, ENTRIES, calls, 50_000)
    assert found == Failed(failure=Failure.BROKEN, error="the time is over after 16 of 20 calls with 200 records")
    assert calls.first == [*range(0, 160, 10)]


def test_first_calls_begin_however_short_the_time_is() -> None:
    calls = Calls()
    found = entry_calls(HastyClock(20_000)).send(BATCH, ENTRIES, calls, 1)
    assert isinstance(found, Failed)
    assert calls.first == [*range(0, 80, 10)]
