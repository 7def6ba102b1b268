"""The queue by botocore, against its own stubs; the stack's SQS is in tests/end_to_end/test_import.py."""

from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from penstock.errors import NotFoundError
from penstock_import.queue.sqs import SqsQueue, queue_message, sqs_client
from penstock_import.source.address import QueueAddress


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
