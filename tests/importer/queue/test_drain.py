"""A drain brings each message once, whatever dies when.

The queue by botocore, against its own stubs; the stack's SQS is in tests/end_to_end/test_import.py.
"""

from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from penstock.errors import FencedError, InvalidError, NotFoundError
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from penstock_import.queue import drain
from penstock_import.queue import drain as drain_module
from penstock_import.queue.drain import Drain, DrainSettings, TakenIds, decode_ids, encode_ids
from penstock_import.queue.sqs import SqsQueue, queue_message, sqs_client
from penstock_import.source.address import QueueAddress
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


def test_message_becomes_key_headers_and_time() -> None:
    message = {
        "MessageId": "m-1",
        "ReceiptHandle": "r-1",
        "Body": "text",
        "Attributes": {"SentTimestamp": "1700000000000", "MessageGroupId": "g", "MessageDeduplicationId": "d"},
        "MessageAttributes": {
            "amount": {"DataType": "Number", "StringValue": "5"},
            "raw": {"DataType": "Binary", "BinaryValue": b"\x00"},
        },
    }
    found = queue_message(message)
    assert (found.key, found.body, found.sent_ms) == (b"g", "text", 1_700_000_000_000)
    assert found.headers == (
        ("amount", b"5"),
        ("raw", b"\x00"),
        ("sqs-message-id", b"m-1"),
        ("sqs-deduplication-id", b"d"),
    )


def test_client_is_of_the_region_that_the_url_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    url = "https://sqs.eu-central-1.amazonaws.com/1/orders"
    assert sqs_client(QueueAddress(queue=url)).meta.region_name == "eu-central-1"
    assert sqs_client(QueueAddress(queue="orders")).meta.region_name == "us-east-1"


def _client() -> Any:
    return botocore.session.Session().create_client(
        "sqs", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b"
    )


def test_unknown_queue_is_named() -> None:
    client = _client()
    with Stubber(client) as stub:
        stub.add_client_error("get_queue_url", "AWS.SimpleQueueService.NonExistentQueue")
        with pytest.raises(NotFoundError, match="no queue 'orders'"):
            SqsQueue(client, QueueAddress(queue="orders"))


def test_delete_goes_in_tens_and_counts_failures() -> None:
    client = _client()
    with Stubber(client) as stub:
        stub.add_response("get_queue_attributes", {"Attributes": {"QueueArn": "arn"}})
        queue = SqsQueue(client, QueueAddress(queue="https://sqs/1/orders"))
        stub.add_response("delete_message_batch", {"Successful": [], "Failed": []})
        failed = {"Id": "0", "SenderFault": True, "Code": "ReceiptHandleIsInvalid"}
        stub.add_response("delete_message_batch", {"Successful": [], "Failed": [failed]})
        messages = [queue_message({"MessageId": f"{n}", "ReceiptHandle": f"{n}", "Body": ""}) for n in range(12)]
        assert queue.delete(messages) == 1
        stub.assert_no_pending_responses()
    assert queue.identity == "sqs:arn"
