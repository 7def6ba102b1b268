"""A drain brings each message once, whatever dies when."""

import pytest

from penstock.errors import FencedError, InvalidError
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from penstock_import.queue import drain
from penstock_import.queue import drain as drain_module
from penstock_import.queue.drain import Drain, DrainSettings, TakenIds, decode_ids, encode_ids
from tests.importer.dying_transport import Death, DyingTransport
from tests.importer.queue.memory_queue import MemoryQueue

_CALLS_MAX = 60


class _Silent:
    def drained_so_far(self, records: int, repeats: int, undeleted: int) -> None:
        pass

    def waits(self, error: PenstockError, seconds: float) -> None:
        raise error


def _drain(queue: MemoryQueue, service: MemoryPenstock, transport: Transport | None = None) -> Drain:
    drain = Drain(queue, transport or service.transport, DrainSettings(topic="orders", wait_ms=0), _Silent())
    drain.progress.create(service.admin())
    return drain


@pytest.fixture
def service() -> MemoryPenstock:
    service = MemoryPenstock()
    service.create_topic("orders", partitions=2)
    return service


def _queue(**settings: int) -> MemoryQueue:
    queue = MemoryQueue(**settings)
    for number in range(8):
        queue.send(f"{number}", group=f"g{number % 2}")
    return queue


def _values(service: MemoryPenstock) -> list[bytes | None]:
    return sorted((each.value for each in service.records("orders")), key=bytes)


_ALL = [b"%d" % number for number in range(8)]


def test_drain_takes_each_message_and_leaves_the_queue_empty(service: MemoryPenstock) -> None:
    queue = _queue()
    drain = _drain(queue, service)
    drain.run()
    drain.close()
    assert _values(service) == _ALL
    assert (drain.records, drain.repeats, queue.counts().total) == (8, 0, 0)
    for group in (b"g0", b"g1"):
        values = [each.value for each in service.records("orders") if each.key == group]
        assert values == sorted(values, key=bytes), "a group keeps its order"
    assert {(each.timestamp_ms, each.headers) for each in service.records("orders")} == {(1_000, (("a", b"1"),))}


def test_drain_only_deletes_a_message_that_comes_again(service: MemoryPenstock) -> None:
    queue = MemoryQueue(failing_deletes=2)
    for number in range(8):
        queue.send(f"{number}")
    first = _drain(queue, service)
    first.run()
    first.close()
    queue.time_out()
    assert queue.counts().total == 2
    second = _drain(queue, service)
    second.run()
    second.close()
    assert (second.records, second.repeats, queue.counts().total) == (0, 2, 0)
    assert _values(service) == _ALL


@pytest.mark.slow
@pytest.mark.parametrize("is_carried_out", [False, True])
def test_drain_takes_each_message_once_when_its_process_dies_at_any_call(
    monkeypatch: pytest.MonkeyPatch, is_carried_out: bool
) -> None:
    monkeypatch.setattr(drain_module, "IMPORT_MESSAGES", 2)
    died = 0
    for at in range(1, _CALLS_MAX):
        queue, service = _queue(), MemoryPenstock()
        service.create_topic("orders", partitions=2)
        try:
            _drain(queue, service, DyingTransport(service.transport, at, is_carried_out=is_carried_out)).run()
        except Death:
            died += 1
        else:
            break
        queue.time_out()
        again = _drain(queue, service)
        again.run()
        again.close()
        assert _values(service) == _ALL, f"died at call {at}"
        assert queue.counts().total == 0
    assert died > 4, "the drain makes more calls than this"


class _DyingQueue(MemoryQueue):
    """Its process dies between the commit and the first delete."""

    def delete(self, messages: object) -> int:
        raise Death


def test_drain_takes_each_message_once_when_its_process_dies_before_the_delete(service: MemoryPenstock) -> None:
    dying = _DyingQueue()
    for number in range(8):
        dying.send(f"{number}")
    with pytest.raises(Death):
        _drain(dying, service).run()
    queue = MemoryQueue()
    queue.messages = dying.messages
    again = _drain(queue, service)
    again.run()
    again.close()
    assert again.repeats > 0
    assert _values(service) == _ALL


def test_drain_stops_the_earlier_process_when_another_one_begins(service: MemoryPenstock) -> None:
    queue = _queue()
    first, second = _drain(queue, service), _drain(MemoryQueue(), service)
    first.prepare()
    second.prepare()
    with pytest.raises(FencedError, match="one process drains a queue"):
        first.run()
    first.close()
    second.close()


def test_ids_forget_the_oldest_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "IMPORT_MESSAGE_IDS_KEPT", 3)
    ids = TakenIds()
    ids.add(["a", "b", "c"])
    ids.add(["a", "d"])
    assert [each in ids for each in "abcd"] == [True, False, True, True]
    assert len(ids) == 3


def test_note_of_ids_survives_its_encoding() -> None:
    assert decode_ids(encode_ids(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"v": 2}', b'{"v": 1}'])
def test_note_is_refused_when_it_is_none(value: bytes) -> None:
    with pytest.raises(InvalidError, match=r"no note|later release"):
        decode_ids(value)
