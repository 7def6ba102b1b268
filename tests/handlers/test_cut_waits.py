"""What callers get when the stage has no waiting time: the answer at once, and when to come back."""

from typing import Any

import pytest

from penstock_core.quotas.bucket import WaitPool
from penstock_core.records import frame
from penstock_service.adapters.memory.service import memory_instance
from tests.handlers.service import Service
from tests.support.service import SteppedClock, batch, with_tuning


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def service(clock: SteppedClock) -> Service:
    nobody = WaitPool(name="stage", instances=0)
    service = Service(with_tuning(memory_instance(clock=clock), wait_pool=nobody))
    service.create("orders")
    group = {"topics": ["orders"], "config": {"start": "earliest"}}
    assert service.call("PUT", "/v1/share-groups/workers", group).status in (200, 201)
    clock.sleeps.clear()
    return service


def fetched(service: Service, wait_ms: int) -> Any:
    partition = {"topic": "orders", "partition": 0, "offset": 0}
    answer = service.call("POST", "/v1/fetch", {"partitions": [partition], "wait_ms": wait_ms})
    return frame.decode(answer.body)[0]


def acquired(service: Service, wait_ms: int) -> Any:
    answer = service.call("POST", "/v1/share-groups/workers/acquire", {"wait_ms": wait_ms})
    return frame.decode(answer.body)[0]


def records(service: Service, wait_ms: int) -> Any:
    return service.call("POST", "/v1/share-groups/workers/records", {"wait_ms": wait_ms}).json


def read(service: Service, wait_ms: int) -> Any:
    return service.read(offset="0", wait_ms=str(wait_ms))


CALLS = [fetched, acquired, records, read]


@pytest.mark.parametrize("call", CALLS)
def test_call_that_waits_answers_at_once_and_tells_when_to_come_back(
    service: Service, clock: SteppedClock, call: Any
) -> None:
    assert call(service, 20_000)["retry_after_ms"] == 1_000
    assert clock.sleeps == []


@pytest.mark.parametrize("call", CALLS)
def test_call_that_does_not_wait_has_no_time_to_come_back(service: Service, call: Any) -> None:
    assert "retry_after_ms" not in call(service, 0)


@pytest.mark.parametrize("call", CALLS)
def test_call_that_finds_records_has_no_time_to_come_back(service: Service, call: Any) -> None:
    service.produce(("orders", 0, batch("x")))
    assert "retry_after_ms" not in call(service, 20_000)
