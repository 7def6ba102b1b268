"""Share consumers, with threads and for asyncio, that wait to be woken by a fake AppSync Events over real sockets."""

import threading
from collections.abc import Iterator

import pytest

from penstock.system import monotonic_ms
from penstock.wake_ups.rhythm import wake_up_price
from penstock_core.limits import SDK_SAFETY_NET_MS
from tests.sdk.share.share_kinds import ShareKind
from tests.sdk.share.work_group import WorkGroup
from tests.support.deadlines import DEADLINE_S, until
from tests.support.fake_app_sync import FakeAppSync
from tests.support.waking_transport import KEYS, WakingTransport


@pytest.fixture
def events() -> Iterator[FakeAppSync]:
    with FakeAppSync(KEYS) as events:
        yield events


@pytest.fixture
def waking(workers: WorkGroup, events: FakeAppSync) -> WakingTransport:
    return WakingTransport(workers.transport, events)


def test_waiting_share_consumer_is_woken_by_an_append(
    consumers: ShareKind, workers: WorkGroup, waking: WakingTransport
) -> None:
    handled: list[bytes | None] = []
    consumer = consumers.consumer("orders", transport=waking)
    run = consumers.run(consumer, lambda record: handled.append(record.value), concurrency=2)
    until(lambda: waking.armed() == 2)
    asked, began_ms = len(waking.fetches), monotonic_ms()
    for number in range(2):
        _append(waking, number)
        until(lambda: len(handled) == number + 1)  # noqa: B023 - called at once
        until(lambda: waking.armed() == 2)
    assert monotonic_ms() - began_ms < SDK_SAFETY_NET_MS / 2  # by wake-ups, then
    assert len(waking.fetches) - asked <= 2 * (3 + wake_up_price(2) + 1)
    consumer.stop()
    run.result(DEADLINE_S)
    assert workers.unfinished() == 0


def test_waiting_share_consumer_is_woken_by_a_release(
    consumers: ShareKind, workers: WorkGroup, waking: WakingTransport
) -> None:
    workers.append(b"1")
    with consumers.consumer("orders", acknowledge="explicit", lock_ms=600_000, transport=waking) as first:
        record = next(first)
        handled = threading.Event()
        second = consumers.consumer("orders", transport=waking)
        run = consumers.run(second, lambda _: handled.set(), concurrency=1)
        until(lambda: waking.armed() == 2)
        first.release(record, delay_ms=0)
        assert handled.wait(SDK_SAFETY_NET_MS / 2_000)
        second.stop()
        run.result(DEADLINE_S)


def _append(waking: WakingTransport, number: int) -> None:
    body = b'{"records": [{"value": "%d"}]}' % number
    answer = waking.call("POST", "/v1/topics/orders/records", {}, {}, body)
    assert answer.status == 200, answer.body
