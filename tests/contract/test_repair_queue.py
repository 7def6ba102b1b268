"""RepairQueue on SQS: what is sent is what replicate is handed."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId, ZoneName
from penstock_core.limits import REPAIR_DELAY_MS
from penstock_core.log.repair import Look, OwedRange, Repair, decode_message
from penstock_service.adapters.on_demand import OnDemand
from penstock_service.adapters.sqs import SqsRepairQueue

REPAIR = Repair(segment_id=SegmentId(b"s" * 16), zones=frozenset((ZoneName("b"),)))


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("sqs", region_name="us-east-1")


def test_send_puts_the_repair_into_the_queue(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="repairs")["QueueUrl"]
    made: list[Any] = []

    def make() -> Any:
        made.append(sqs)
        return sqs

    queue = SqsRepairQueue(OnDemand(make), url)
    assert not made
    for _ in range(2):
        queue.send(REPAIR)
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [decode_message(message["Body"]) for message in messages] == [REPAIR, REPAIR]
    assert len(made) == 1


def test_look_is_sent_with_a_delay() -> None:
    sent: list[dict[str, Any]] = []

    class Client:
        def send_message(self, **arguments: Any) -> None:
            sent.append(arguments)

    queue = SqsRepairQueue(Client, "http://queue")
    key = PartitionKey(TopicId("t1"), Partition(0))
    look = Look(ranges=(OwedRange(key=key, start_offset=Offset(0), end_offset=Offset(1)),))
    queue.send(look)
    queue.send(REPAIR)
    assert [decode_message(each["MessageBody"]) for each in sent] == [look, REPAIR]
    assert [each["DelaySeconds"] for each in sent] == [REPAIR_DELAY_MS // 1_000, 0]


def test_send_says_so_when_the_queue_does_not_take_it(sqs: Any) -> None:
    queue = SqsRepairQueue(lambda: sqs, "https://sqs.us-east-1.amazonaws.com/123456789012/none")
    with pytest.raises(PenstockError) as caught:
        queue.send(REPAIR)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
