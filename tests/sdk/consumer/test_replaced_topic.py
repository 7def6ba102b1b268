"""A topic that is deleted and created anew under a reader: the reader is told, and starts anew as its settings say."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ConnectionFailedError, NoOffsetError, TopicReplacedError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until

P0 = TopicPartition("orders", 0)
FAST: dict[str, Any] = {"fetch_wait_ms": 0, "retry_backoff_ms": 1, "auto_offset_reset": "earliest"}
OLD, NEW = [b"old %d" % number for number in range(5)], [b"new %d" % number for number in range(8)]


class _Gate:
    """A transport that can be cut off, so that the reader does not ask between deletion and creation."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.is_open = True

    def call(self, method: str, path: str, query: Any, headers: Any, body: bytes) -> Response:
        if not self.is_open:
            raise ConnectionFailedError("cut off", maybe_applied=False)
        answer = self._inner.call(method, path, query, headers, body)
        if not self.is_open:
            raise ConnectionFailedError("cut off", maybe_applied=True)
        return answer

    def close(self) -> None:
        pass


@pytest.fixture
def gate(service: MemoryPenstock) -> _Gate:
    _create(service, OLD)
    return _Gate(service.transport)


def _create(service: MemoryPenstock, values: list[bytes]) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        for value in values:
            producer.send("orders", value)


def _make_anew(service: MemoryPenstock, gate: _Gate) -> None:
    gate.is_open = False
    service.admin().delete_topic("orders")
    _create(service, NEW)
    gate.is_open = True


def _values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def _read(consumer: Any, is_enough: Callable[[list[bytes | None]], bool]) -> list[bytes | None]:
    seen: list[bytes | None] = []
    until(
        lambda: is_enough(seen),
        step=lambda: seen.extend(_values(consumer.poll(timeout_ms=20))),
        shown=lambda: f"{seen} came",
    )
    return seen


@pytest.mark.parametrize("group_id", [None, "readers"])
def test_reader_misses_no_record_of_a_topic_that_was_made_anew(
    clients: ClientKind, service: MemoryPenstock, gate: _Gate, group_id: str | None
) -> None:
    with clients.consumer(group_id=group_id, enable_auto_commit=False, transport=gate, **FAST) as consumer:
        consumer.assign([P0])
        assert _read(consumer, lambda seen: len(seen) == 5) == OLD
        if group_id:
            consumer.commit()
        _make_anew(service, gate)
        assert _read(consumer, lambda seen: len(seen) >= 8) == NEW
        if group_id:
            consumer.commit()
            assert consumer.committed(P0) == 8


def test_commit_of_the_old_topics_position_is_refused(
    clients: ClientKind, service: MemoryPenstock, gate: _Gate
) -> None:
    with clients.consumer(group_id="readers", enable_auto_commit=False, transport=gate, **FAST) as consumer:
        consumer.assign([P0])
        assert len(_read(consumer, lambda seen: len(seen) == 5)) == 5
        _make_anew(service, gate)
        new_id = service.admin().describe_topic("orders").topic.topic_id
        with pytest.raises(TopicReplacedError) as caught:
            consumer.commit({P0: 5})
        assert caught.value.facts["topic_id"] == new_id
        assert consumer.committed(P0) is None


def test_none_resets_nothing_when_the_topic_was_made_anew(
    clients: ClientKind, service: MemoryPenstock, gate: _Gate
) -> None:
    settings = {**FAST, "auto_offset_reset": "none"}
    with clients.consumer(transport=gate, **settings) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        assert _read(consumer, lambda seen: len(seen) == 5) == OLD
        _make_anew(service, gate)
        with pytest.raises(NoOffsetError):
            _read(consumer, lambda seen: bool(seen))
        consumer.seek(P0, 6)
        assert _read(consumer, lambda seen: len(seen) >= 2) == NEW[6:]


def test_member_reads_the_new_topic_from_its_beginning_under_a_lease_of_its_own(
    clients: ClientKind, service: MemoryPenstock, gate: _Gate
) -> None:
    group = {"group_id": "g", "heartbeat_interval_ms": 250, "session_timeout_ms": 2_000}
    with clients.consumer("orders", transport=gate, **group, **FAST) as consumer:
        assert _read(consumer, lambda seen: len(seen) == 5) == OLD
        consumer.commit()
        _make_anew(service, gate)
        assert _read(consumer, lambda seen: len(seen) >= 8) == NEW
        consumer.commit()
        assert consumer.committed(P0) == 8


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_delivery_goes_on_when_the_topic_is_made_anew_before_a_commit(
    clients: ClientKind, service: MemoryPenstock, gate: _Gate, delivery: str
) -> None:
    with clients.consumer(group_id="readers", delivery=delivery, transport=gate, **FAST) as consumer:
        consumer.assign([P0])
        assert consumer.poll(max_records=2, timeout_ms=5_000) != []
        _make_anew(service, gate)
        seen = _read(consumer, lambda seen: len([each for each in seen if each in NEW]) >= 8)
        assert [each for each in seen if each in NEW] == NEW
