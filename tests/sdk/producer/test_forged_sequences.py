"""Another client takes the next sequence of a producer: the producer goes on under a new id, and loses no record."""

from collections.abc import Callable

from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.records import frame
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.record_batch import BatchHeader, parse_header
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer, lost_request
from tests.support.deadlines import DEADLINE_S

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
