"""When the producer asks for a topic's description again.

Another client takes the next sequence of a producer: the producer goes on under a new id, and loses no record.
"""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from penstock.errors import InvalidError, UnknownTopicError
from penstock.http.http_message import Document, HttpRequest, Response
from penstock.http.steps import Wait, drive
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.producer_core import ProducerCore
from penstock.producer.settings import ProducerSettings
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records import frame
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.record_batch import BatchHeader, parse_header
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer, lost_request
from tests.support.deadlines import DEADLINE_S

AGE_MS = 1_000


class Described:
    """A core with a clock of the test's, whose topic has four partitions. `asked` counts its descriptions."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 1
        self.asked = 0
        self.core = ProducerCore(
            ProducerSettings(metadata_max_age_ms=AGE_MS, linger_ms=600_000, **settings),
            now_ms=lambda: self.now_ms,
            choose=lambda count: 0,
            new_nonce=lambda: "0" * 32,
        )

    def send(self, value: Any = b"v", key: Any = None, timestamp_ms: Any = 5, partition: Any = None) -> ProducerBatch:
        arguments = ("orders", value, key, (), partition, timestamp_ms)
        batch = self.core.append_now(*arguments)
        return self._drive(self.core.append(*arguments)) if batch is None else batch

    def _drive(self, steps: Generator[HttpRequest | Wait, Document, ProducerBatch]) -> ProducerBatch:
        return drive(steps, self._describe)

    def _describe(self, effect: HttpRequest | Wait) -> Document:
        assert isinstance(effect, HttpRequest)
        self.asked += 1
        return {
            "name": "orders",
            "topic_id": "0" * 32,
            "partitions": 4,
            "writable_partitions": 4,
            "config": {},
            "created_at_ms": 0,
        }


def test_record_that_joins_an_open_batch_asks_for_no_description_when_it_is_old() -> None:
    described = Described()
    batch = described.send()
    described.now_ms = AGE_MS + 2
    assert described.send() is batch
    assert described.asked == 1


def test_record_that_opens_a_batch_asks_for_the_description_when_it_is_old() -> None:
    described = Described()
    described.send()
    described.core.accumulator.flush_waiters = 1
    described.core.accumulator.drain(1)  # the open batch leaves
    described.now_ms = AGE_MS + 2
    described.send()
    assert described.asked == 2


def test_next_record_asks_for_the_description_when_the_topic_has_changed_though_a_batch_is_open() -> None:
    described = Described()
    accumulator = described.core.accumulator
    described.send(key=b"a")
    accumulator.flush_waiters = 1
    entries = accumulator.drain(1)
    described.send(key=b"a")  # it opens the next batch
    accumulator.complete(entries, [UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "gone")], 1, 0.0)
    described.send(key=b"a")
    assert described.asked == 2


@pytest.mark.parametrize("key", [b"customer 7", "customer 7"])
def test_record_with_key_joins_the_batch_of_its_partition(key: Any) -> None:
    described = Described()
    first = described.send(key=key)
    assert first.partition == partition_for_key(b"customer 7", 4)
    assert described.send("text", key=key) is first


def test_record_that_would_join_is_refused_with_the_argument_whose_type_is_wrong() -> None:
    described = Described()
    described.send()
    with pytest.raises(InvalidError, match=r"timestamp_ms=1\.5: give milliseconds since 1970"):
        described.send(timestamp_ms=1.5)
    with pytest.raises(InvalidError, match="value=7: give bytes, str or None"):
        described.send(7)
    with pytest.raises(InvalidError, match="key=7: give bytes, str or None"):
        described.send(key=7)


def test_whole_number_that_is_no_int_serves_as_timestamp_when_the_record_joins() -> None:
    class Whole:
        def __index__(self) -> int:
            return 9

    described = Described()
    batch = described.send()
    assert described.send(timestamp_ms=Whole()) is batch


def test_named_partition_pins_the_batch_that_its_record_joins() -> None:
    described = Described()
    batch = described.send(key=b"a")
    assert not batch.is_pinned
    assert described.send(partition=batch.partition) is batch
    assert batch.is_pinned


@pytest.mark.parametrize("partition", [4, -1, True, "0"])
def test_partition_that_the_topic_has_not_is_refused_though_batches_are_open(partition: Any) -> None:
    described = Described()
    for each in range(4):
        described.send(partition=each)
    with pytest.raises(PenstockError, match="partition"):
        described.send(partition=partition)


def test_named_partition_decides_when_there_is_a_key_too() -> None:
    described = Described()
    other = (partition_for_key(b"a", 4) + 1) % 4
    batch = described.send(key=b"a", partition=other)
    assert described.send(key=b"a", partition=other) is batch


PRODUCE = "/v1/produce"


def _sent(request: bytes) -> BatchHeader:
    _, data = frame.decode(request)
    return parse_header(data)


def _requests(faulty: FaultyTransport) -> list[BatchHeader]:
    return [_sent(body) for _, path, body in faulty.calls if path == PRODUCE]


def _forger(service: MemoryPenstock, faulty: FaultyTransport) -> Callable[[Callable[[], Response]], Response]:
    """A fault: while a request is on its way, the service takes another batch with the same numbers."""

    def overtake(send: Callable[[], Response]) -> Response:
        victim = _requests(faulty)[-1]
        builder = BatchBuilder()
        builder.append(1_000, None, b"forged")
        data = builder.build(
            producer_id=victim.producer_id,
            producer_epoch=victim.producer_epoch,
            base_sequence=victim.base_sequence,
        )
        header = {"batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
        taken = service.transport.call("POST", PRODUCE, {}, {}, frame.encode(header, [data]))
        assert b'"base_offset"' in taken.body
        return send()

    return overtake


def test_producer_whose_sequence_was_forged_goes_on_as_a_new_one(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    service.create_topic("orders")
    with clients.producer(transport=faulty, retry_backoff_ms=1) as producer:
        assert producer.send("orders", b"a", partition=0).result(DEADLINE_S).offset == 0
        faulty.faults[PRODUCE] = [_forger(service, faulty)]
        assert producer.send("orders", b"b", partition=0).result(DEADLINE_S).offset == 2
        assert producer.send("orders", b"c", partition=0).result(DEADLINE_S).offset == 3
    assert [record.value for record in service.records("orders")] == [b"a", b"forged", b"b", b"c"]
    first, refused, again, behind = _requests(faulty)
    assert (refused.producer_id, refused.base_sequence) == (first.producer_id, 1)
    assert again.producer_id != first.producer_id
    assert (behind.producer_id, again.base_sequence, behind.base_sequence) == (again.producer_id, 0, 1)


def test_forged_sequence_costs_no_record_and_no_copy_when_requests_and_answers_are_lost(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    service.create_topic("orders")
    faulty.faults[PRODUCE] = [lost_request, _forger(service, faulty), lost_answer]
    with clients.producer(transport=faulty, retry_backoff_ms=1) as producer:
        assert producer.send("orders", b"a", partition=0).result(DEADLINE_S).offset == 1
    assert [record.value for record in service.records("orders")] == [b"forged", b"a"]
    assert [header.base_sequence for header in _requests(faulty)] == [0, 0, 0, 0]
    assert len({header.producer_id for header in _requests(faulty)}) == 2
