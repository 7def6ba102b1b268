"""Calls side by side: results in order, errors as results, defects raised, and no call waits for one that hangs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from moto import mock_aws

from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import ThreadExecutor
from tests.support.deadlines import DEADLINE_S
from tests.support.service import UNAVAILABLE


@pytest.fixture
def threads() -> Iterator[ThreadExecutor]:
    pool = ThreadExecutor()
    yield pool
    pool.close()


def _answer(item: Any) -> Any:
    """Calls a callable, raises an error, returns anything else."""
    if isinstance(item, Exception):
        raise item
    return item() if callable(item) else item


def _enough(count: int) -> Callable[[Sequence[Any]], bool]:
    return lambda results: sum(result is not None for result in results) >= count


@pytest.mark.parametrize("is_in_a_lane", [False, True])
def test_map_needs_no_other_thread_when_a_call_of_the_executor_calls_it(
    threads: ThreadExecutor, is_in_a_lane: bool
) -> None:
    """Else as many calls as there are threads would wait for threads for ever."""

    def calls_side_by_side(_: int) -> set[int]:
        return {threading.get_ident(), *threads.map(lambda _: threading.get_ident(), range(3)).all_ok()}

    if is_in_a_lane:
        found = threads.first_of(calls_side_by_side, range(2), _enough(2), 0)
    else:
        found = [*threads.map(calls_side_by_side, range(2))]
    assert [len(each) for each in found if isinstance(each, set)] == [1, 1]
    assert threading.get_ident() not in threads.map(lambda _: threading.get_ident(), range(3)), (
        "later calls have threads"
    )


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_map_answers_in_the_order_of_the_items(threads: ThreadExecutor, count: int) -> None:
    assert threads.map(lambda item: item * 2, range(count)) == tuple(item * 2 for item in range(count))


@pytest.mark.parametrize("items", [[UNAVAILABLE], [1, UNAVAILABLE, 3]])
def test_map_makes_an_error_that_items_result(threads: ThreadExecutor, items: list[Any]) -> None:
    assert threads.map(_answer, items) == tuple(items)


@pytest.mark.parametrize("items", [[ValueError("defect")], [1, ValueError("defect"), 3]])
def test_map_raises_a_defect(threads: ThreadExecutor, items: list[Any]) -> None:
    with pytest.raises(ValueError, match="defect"):
        threads.map(_answer, items)


def test_map_calls_side_by_side(threads: ThreadExecutor) -> None:
    together = threading.Barrier(5)
    assert set(threads.map(lambda _: together.wait(DEADLINE_S), range(5))) == set(range(5))


def test_first_of_answers_all_when_all_come_within_the_grace(threads: ThreadExecutor) -> None:
    assert threads.first_of(_answer, ["a", UNAVAILABLE, "c"], _enough(1), 60_000) == ["a", UNAVAILABLE, "c"]


def test_first_of_leaves_out_a_call_that_hangs_once_enough_have_answered(threads: ThreadExecutor) -> None:
    go_on = threading.Event()
    try:
        assert threads.first_of(_answer, ["a", go_on.wait, "c"], _enough(2), 0) == ["a", None, "c"]
    finally:
        go_on.set()


def test_first_of_waits_for_a_straggler_within_the_grace(threads: ThreadExecutor) -> None:
    """The second answers only after the first is known to be enough."""
    asked = threading.Event()

    def is_enough(results: Sequence[Any]) -> bool:
        if results[0] is None:
            return False
        asked.set()
        return True

    assert threads.first_of(_answer, ["a", partial(asked.wait, DEADLINE_S)], is_enough, 60_000) == ["a", True]


def test_first_of_waits_for_all_when_it_is_never_enough(threads: ThreadExecutor) -> None:
    asked = threading.Event()

    def is_enough(results: Sequence[Any]) -> bool:
        if results[0] is not None:
            asked.set()
        return False

    assert threads.first_of(_answer, ["a", partial(asked.wait, DEADLINE_S)], is_enough, 0) == ["a", True]


def test_first_of_raises_a_defect(threads: ThreadExecutor) -> None:
    with pytest.raises(ValueError, match="defect"):
        threads.first_of(_answer, ["a", ValueError("defect")], _enough(2), 0)


def test_first_of_of_nothing_is_nothing(threads: ThreadExecutor) -> None:
    assert threads.first_of(_answer, [], _enough(1), 60_000) == []


def test_first_of_is_not_held_up_by_calls_that_hung_in_earlier_ones(threads: ThreadExecutor) -> None:
    go_on = threading.Event()
    hung = 0

    def hang() -> None:
        nonlocal hung
        hung += 1
        go_on.wait()

    try:
        for _ in range(100):
            assert threads.first_of(_answer, ["a", hang, "c"], _enough(2), 0) == ["a", None, "c"]
        assert threads.map(_answer, [1, 2]) == (1, 2)
    finally:
        go_on.set()
    threads.close()
    assert hung < 100, "calls that had not begun when their result was decided are dropped"


def test_first_of_ends_when_its_time_is_up(threads: ThreadExecutor) -> None:
    go_on = threading.Event()
    try:
        assert threads.first_of(_answer, [go_on.wait], _enough(1), 0, timeout_ms=1) == [None]
    finally:
        go_on.set()


def test_first_of_begins_the_next_after_its_hedge_delay_or_a_failure(
    threads: ThreadExecutor,
) -> None:
    def is_good(results: Sequence[Any]) -> bool:
        return any(isinstance(result, str) for result in results)

    hedge_delays_ms = [60_000.0] * 3
    assert threads.first_of(_answer, ["a", "b", "c"], is_good, 0, hedge_delays_ms=hedge_delays_ms) == ["a", None, None]
    failed = threads.first_of(_answer, [UNAVAILABLE, "b", "c"], is_good, 0, hedge_delays_ms=hedge_delays_ms)
    assert failed == [UNAVAILABLE, "b", None]
    go_on = threading.Event()
    try:
        slow = threads.first_of(_answer, [go_on.wait, "b", "c"], is_good, 0, hedge_delays_ms=[1.0, 60_000.0, 60_000.0])
        assert slow == [None, "b", None]
    finally:
        go_on.set()


def test_close_waits_for_what_runs() -> None:
    pool = ThreadExecutor()
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait()
        done.set()

    pool.first_of(_answer, ["a", slow], lambda results: results[0] is not None and begun.wait(DEADLINE_S), 0)
    go_on.set()
    pool.close()
    assert done.is_set()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("s3", region_name="us-east-1", config=Config(retries={"total_max_attempts": 3}))


def test_storage_calls_counts_what_is_sent_by_service_and_operation(driver: Any) -> None:
    calls = StorageCalls()
    calls.watch(driver)
    before = calls.snapshot()
    driver.create_bucket(Bucket="bucket")
    driver.put_object(Bucket="bucket", Key="k", Body=b"x")
    middle = calls.snapshot()
    for _ in range(2):
        driver.get_object(Bucket="bucket", Key="k")
    assert calls.since(before) == {"s3.CreateBucket": 1, "s3.GetObject": 2, "s3.PutObject": 1}
    assert calls.since(middle) == {"s3.GetObject": 2}
    assert calls.since(calls.snapshot()) == {}


def test_storage_calls_counts_repeats_of_the_driver(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = StorageCalls()
    calls.watch(driver)
    monkeypatch.setattr("time.sleep", lambda _: None)
    failing = [500, 500]

    def fail(request: Any, **_: Any) -> Any:
        return AWSResponse(request.url, failing.pop(), {}, _Empty()) if failing else None

    driver.create_bucket(Bucket="bucket")
    driver.meta.events.register_first("before-send.s3.ListObjectsV2", fail)
    driver.list_objects_v2(Bucket="bucket")
    assert calls.snapshot()["s3.ListObjectsV2"] == 3


class _Empty:
    def stream(self) -> Iterator[bytes]:
        return iter(())
