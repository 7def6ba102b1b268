"""Commits without membership only rise, and "latest" is committed before a record behind it is returned."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import AccessDeniedError, ConnectionFailedError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport, answer
from tests.support.deadlines import until

P0 = TopicPartition("orders", 0)
OFFSETS = "/v1/groups/g/offsets"
FAST: dict[str, Any] = {"group_id": "g", "fetch_wait_ms": 0, "retry_backoff_ms": 1}


class _LateCommit:
    """The first commit that `is_late` picks is slow on its way: its client gives it up, and sends it again."""

    def __init__(self, inner: Transport, is_late: Callable[[bytes], bool] = lambda _: True) -> None:
        self._inner = inner
        self._is_late = is_late
        self._kept: tuple[Any, ...] | None = None

    def call(self, method: str, path: str, query: Any, headers: Any, body: bytes) -> Response:
        if method == "POST" and path == OFFSETS and self._kept is None and self._is_late(body):
            self._kept = (method, path, query, headers, body)
            raise ConnectionFailedError("timed out", maybe_applied=True)
        return self._inner.call(method, path, query, headers, body)

    def arrive(self) -> None:
        assert self._kept is not None
        self._inner.call(*self._kept)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders")
    _send(service, range(10))
    return "orders"


def _send(service: MemoryPenstock, numbers: range) -> None:
    with service.producer() as producer:
        for number in numbers:
            producer.send("orders", str(number))


def _numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


def _read(consumer: Any, count: int, **settings: Any) -> list[int]:
    seen: list[int] = []
    until(
        lambda: len(seen) >= count,
        step=lambda: seen.extend(_numbers(consumer.poll(timeout_ms=20, **settings))),
        shown=lambda: f"{seen} of {count} came",
    )
    return seen


def test_late_commit_of_a_killed_process_hands_nothing_out_twice(clients: ClientKind, service: MemoryPenstock) -> None:
    settings = {**FAST, "delivery": "at_most_once", "auto_offset_reset": "earliest", "max_poll_records": 5}
    late = _LateCommit(service.transport)
    with clients.consumer(transport=late, **settings) as first:
        first.assign([P0])
        assert _read(first, 10) == [*range(10)]
    late.arrive()
    with clients.consumer(**settings) as second:
        second.assign([P0])
        assert second.poll(timeout_ms=200) == []
        assert second.position(P0) == 10


def test_commit_goes_back_where_the_application_has_sought_and_its_late_twin_does_not(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    settings = {**FAST, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    late = _LateCommit(service.transport, lambda body: b"back_from" in body)
    with clients.consumer(transport=late, **settings) as consumer:
        consumer.assign([P0])
        _read(consumer, 10)
        consumer.commit()
        consumer.seek(P0, 3)
        consumer.commit()
        assert consumer.committed(P0) == 3
        _read(consumer, 7)
        consumer.commit()
        assert consumer.committed(P0) == 10
        late.arrive()
        assert consumer.committed(P0) == 10


def test_commit_without_seek_does_not_undo_what_another_consumer_committed(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    settings = {**FAST, "enable_auto_commit": False, "auto_offset_reset": "earliest", "max_poll_records": 4}
    with clients.consumer(**settings) as slow, clients.consumer(**settings) as quick:
        for each in (slow, quick):
            each.assign([P0])
        assert _read(slow, 4) == [*range(4)]
        assert _read(quick, 10) == [*range(10)]
        quick.commit()
        slow.commit()
        assert slow.committed(P0) == 10
        slow.commit({P0: 4})  # given by the application: it says so
        assert slow.committed(P0) == 4


def test_at_most_once_skips_what_another_consumer_of_the_group_was_handed(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    settings = {**FAST, "delivery": "at_most_once", "auto_offset_reset": "earliest", "max_poll_records": 3}
    with clients.consumer(**settings) as slow, clients.consumer(**settings) as quick:
        for each in (slow, quick):
            each.assign([P0])
        assert _read(slow, 3) == [0, 1, 2]
        service.admin().commit_group_offsets("g", {P0: 8})
        assert _read(slow, 2) == [8, 9]


MODES: dict[str, dict[str, Any]] = {
    "exactly once": {"delivery": "exactly_once"},
    "manual commits": {"enable_auto_commit": False},
    "auto commit": {"auto_commit_interval_ms": 600_000},
}


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_start_at_the_end_is_committed_before_a_record_is_returned(
    clients: ClientKind, service: MemoryPenstock, mode: str, is_member: bool
) -> None:
    def consumer() -> Any:
        topics = ["orders"] if is_member else []
        made = clients.consumer(*topics, **FAST, **MODES[mode], auto_offset_reset="latest")
        if not is_member:
            made.assign([P0])
        return made

    with consumer() as first:
        until(lambda: first.assignment() == [P0], step=lambda: first.poll(timeout_ms=20))
        assert first.position(P0) == 10
        _send(service, range(10, 15))
        handed = _read(first, 5)
        first.close(autocommit=False)  # it fails before it has committed: another one goes on
    with consumer() as second:
        assert _read(second, 5) == handed == [*range(10, 15)]


def _as_asked(send: Callable[[], Response]) -> Response:
    return send()


def test_no_record_is_returned_while_the_start_at_the_end_cannot_be_committed(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    faulty = FaultyTransport(service.transport)
    settings = {**FAST, "delivery": "exactly_once", "auto_offset_reset": "latest"}
    commits_refused: Any = [_as_asked, answer(403, b"{}")]
    faulty.faults[OFFSETS] = commits_refused * 2
    with clients.consumer(transport=faulty, **settings) as consumer:
        consumer.assign([P0])
        with pytest.raises(AccessDeniedError):
            consumer.poll(timeout_ms=20)
        _send(service, range(10, 12))
        with pytest.raises(AccessDeniedError):
            consumer.poll(timeout_ms=20)
        _send(service, range(12, 14))
        assert consumer.committed(P0) is None
        assert consumer.poll(timeout_ms=200) == []
        assert consumer.committed(P0) == 14
