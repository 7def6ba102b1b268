"""Bills records that a function gets: by a subscription, and by Lambda's own triggers of SQS and Kinesis.

The price has two parts: the records are sent in batches of 100, and a function is called with each batch. The cost of
the function itself is left out, because it is the same for all. `deliver` waits for its answer, and pays for that.

SQS and Kinesis are computed from their prices: SQS takes 10 messages in a request, and its trigger receives and deletes
10 at a time. Kinesis is on demand, with one reader, and costs its stream's hours beside.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.bill.deployment import Bill, BilledDeployment, BilledProfile, BillError
from bench.bill.requests import MILLION, TOPIC, with_topic
from bench.report.result import Row
from penstock import Producer, prices
from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.push_event import PushEvent
from penstock_core.push.batch import Answer, Answered, PushBatch
from penstock_core.push.targets.target import Target
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.dispatch import dispatch

BATCH_RECORDS, RECORD_BYTES = 100, 1_000
TARGET_MS = (10, 100)  # the function's time for a batch
_ROUNDS = 16
_MESSAGE_REQUESTS = 3  # send, receive, delete
_SQS_BATCH = 10
_TARGET = {"lambda": f"arn:aws:lambda:{prices.REGION}:123456789012:function:pack"}
_NAME = "pack"


@dataclass(slots=True)
class _Pushing:
    """A subscription in the billed deployment: its instance, its queue, and the messages that were received."""

    deployment: BilledDeployment
    instance: Instance
    queue: MemoryDeliveryQueue
    targets: MemoryTargets
    messages: int = 0

    def deliver_all(self) -> None:
        """Receive and serve messages until there are none."""
        while received := self.queue.receive():
            self.messages += 1
            [message] = received
            with self.deployment.billed("deliver", moved_bytes=0):
                ending = deliver(
                    self.instance,
                    Receipt(message=message.message, message_id=message.message_id, handle=message.receipt),
                )
            if ending is not Ending.DELETE:
                raise BillError("a delivery has left its message in the queue")
            self.queue.delete(message.receipt)

    def dispatch(self, event: PushEvent) -> None:
        """Serve one event of the stream."""
        stores = self.instance.stores
        with self.deployment.billed("dispatch", moved_bytes=0):
            outcome = dispatch(stores.push, stores.deliveries, self.instance.executor, [event])
        if outcome.messages != 1:
            raise BillError(f"{outcome.messages} messages for one event")

    def send(self, producer: Producer) -> None:
        """One batch of records, which goes on the bill of the sender."""
        for _ in range(BATCH_RECORDS):
            producer.send(TOPIC, b"x" * RECORD_BYTES)
        producer.flush()

    def take(self, name: str, target_ms: int | None = None) -> Row:
        """The dollars of a million records by line, from `_ROUNDS` batches."""
        bill = self.deployment.take()
        bill.lines["sqs"] += prices.SQS_REQUESTS.of(_MESSAGE_REQUESTS * self.messages)
        self.messages = 0
        if target_ms is not None and len(self.targets.deliveries) != _ROUNDS:
            raise BillError(f"{len(self.targets.deliveries)} deliveries of {_ROUNDS} batches")
        self.targets.deliveries.clear()
        return _row(name, target_ms, bill)


def bill_pushed_records(profile: BilledProfile) -> list[Row]:
    """Rows of a million records of 1 KB: what they cost to send, and then to push, and the same for SQS and Kinesis."""
    rows: list[Row] = []
    for target_ms in TARGET_MS:
        rows += _penstock(profile, target_ms)
    return [*{str(row): row for row in rows}.values(), *_sqs(), *_kinesis()]


def _penstock(profile: BilledProfile, target_ms: int) -> Iterator[Row]:
    with (
        _pushing(profile, target_ms) as pushing,
        Producer(transport=pushing.deployment, linger_ms=60_000, compression_type="none") as producer,
    ):
        for _ in range(_ROUNDS):
            pushing.send(producer)
        yield pushing.take("Penstock, sent")
        _subscribe(pushing)
        pushing.deliver_all()
        yield pushing.take("Penstock, pushed while batches wait", target_ms)
        spent = Bill()
        for _ in range(_ROUNDS):
            pushing.send(producer)
            pushing.deployment.take()
            pushing.dispatch(_event(pushing.instance))
            pushing.deliver_all()
            taken = pushing.deployment.take()
            spent.lines.add(taken.lines)
            spent.calls.update(taken.calls)
        pushing.deployment.bill = spent
        yield pushing.take("Penstock, pushed one by one", target_ms)


@contextmanager
def _pushing(profile: BilledProfile, target_ms: int) -> Iterator[_Pushing]:
    with with_topic(profile) as deployment:
        queue, targets = MemoryDeliveryQueue(deployment.clock), MemoryTargets()

        def answer(_target: Target, _batch: PushBatch) -> Answer:
            deployment.clock.sleep_ms(target_ms)
            return Answered()

        targets.answer = answer
        stores = replace(deployment.instance.stores, deliveries=queue, targets=targets)
        instance = replace(deployment.instance, stores=stores)
        deployment.take()
        yield _Pushing(deployment=deployment, instance=instance, queue=queue, targets=targets)


def _subscribe(pushing: _Pushing) -> None:
    """A subscription that begins with the log. Its creation is not billed."""
    wish = SubscriptionWish(topics=[TOPIC], target=_TARGET, settings={"start": "earliest"})
    put_subscription(pushing.instance, _NAME, wish)
    pushing.deployment.take()


def _event(instance: Instance) -> PushEvent:
    """The event of the last append."""
    key = PartitionKey(instance.topic_cache.get(TOPIC).topic_id, Partition(0))
    next_offset = instance.stores.log.heads([key])[key].next_offset
    return PushEvent(key=key, next_offset=next_offset)


def _sqs() -> Iterator[Row]:
    requests = MILLION / _SQS_BATCH
    yield _alone("SQS, sent", sqs=prices.SQS_REQUESTS.of(requests))
    yield _alone("SQS, its trigger", sqs=prices.SQS_REQUESTS.of(2 * requests))


def _kinesis() -> Iterator[Row]:
    moved = MILLION * RECORD_BYTES
    yield _alone("Kinesis, put", kinesis=prices.KINESIS_BYTES_IN.of(moved))
    yield _alone("Kinesis, its trigger", kinesis=prices.KINESIS_BYTES_OUT.of(moved))
    yield _alone("Kinesis, the stream for a month", kinesis=prices.KINESIS_STREAM_HOURS.of(prices.HOURS_PER_MONTH))


def _row(name: str, target_ms: int | None, bill: Bill) -> Row:
    batches = MILLION / BATCH_RECORDS
    lines = {line: sum(bill.lines[part] for part in parts) / _ROUNDS * batches for line, parts in _LINES.items()}
    calls = ", ".join(f"{count / _ROUNDS:.3g} {each.partition('.')[2]}" for each, count in sorted(bill.calls.items()))
    return {
        "records": name,
        "target_ms": target_ms,
        "sum_usd": round(sum(lines.values()), 3),
        **{f"{line}_usd": round(usd, 3) for line, usd in lines.items()},
        "calls": calls,
    }


def _alone(name: str, **lines: float) -> Row:
    known: Row = {f"{line}_usd": None for line in _LINES}
    return {
        "records": name,
        "target_ms": None,
        "sum_usd": round(sum(lines.values()), 3),
        **known,
        "calls": "",
    }


_LINES = {
    "api": ("api",),
    "lambda": ("lambda",),
    "s3": ("puts", "gets", "bytes"),
    "dynamodb": ("dynamodb",),
    "sqs": ("sqs",),
    "logs": ("logs",),
}
