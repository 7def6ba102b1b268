"""examples/worker.py: what its loop handles and commits. tests/end_to_end/test_examples.py sends it real signals."""

import pytest

from examples.worker import work
from penstock import ConsumerRecord
from penstock.testing import MemoryPenstock

RECORDS = 30
POLL_RECORDS = 10


@pytest.fixture(autouse=True)
def orders(penstock: MemoryPenstock) -> None:
    penstock.create_topic("orders", partitions=1)
    with penstock.producer() as producer:
        for number in range(RECORDS):
            producer.send("orders", b"%d" % number)


def test_work_finishes_and_commits_the_records_in_hand_when_it_is_told_to_stop(penstock: MemoryPenstock) -> None:
    first, second = _handled(penstock, stop_at=4), _handled(penstock, stop_at=RECORDS - 1)

    assert first == list(range(POLL_RECORDS))
    assert second == list(range(POLL_RECORDS, RECORDS))


def test_work_hands_a_record_out_again_when_handling_it_has_failed(penstock: MemoryPenstock) -> None:
    with pytest.raises(ZeroDivisionError):
        _handled(penstock, stop_at=RECORDS, fail_at=15)

    assert _handled(penstock, stop_at=RECORDS - 1) == list(range(POLL_RECORDS, RECORDS))


def _handled(penstock: MemoryPenstock, *, stop_at: int, fail_at: int | None = None) -> list[int]:
    """The numbers that a new worker handles. It is told to stop while it has record `stop_at` in hand."""
    handled: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        number = int(record.value or b"")
        if number == fail_at:
            raise ZeroDivisionError
        handled.append(number)
        if number == stop_at:
            consumer.stop()

    settings = {"group_id": "workers", "enable_auto_commit": False, "max_poll_records": POLL_RECORDS}
    with penstock.consumer("orders", **settings) as consumer:
        work(consumer, handle)
    return handled
