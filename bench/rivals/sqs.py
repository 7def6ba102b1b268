"""SQS by boto3: messages go, come and are deleted in batches of 10, the most that it takes."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from bench.rivals.aws_client import CallingThreads, emulated
from bench.rivals.rival import Seat

BATCH = 10
_GROUPS = 100  # of a FIFO queue: a group in flight blocks its own messages only
_WAIT_S = 1  # the shortest long poll


@dataclass(frozen=True, slots=True, kw_only=True)
class Sqs:
    """A standard queue, or a FIFO one."""

    port: int
    topic: str = ""
    is_fifo: bool = False
    threads: tuple[int, ...] = (1, 2, 4, 8)

    @property
    def name(self) -> str:
        return "SQS FIFO" if self.is_fifo else "SQS"

    @property
    def queue(self) -> str:
        return f"{self.topic}.fifo" if self.is_fifo else self.topic

    def make(self) -> None:
        emulated("sqs", self.port).create_queue(
            QueueName=self.queue, Attributes={"FifoQueue": "true"} if self.is_fifo else {}
        )

    def drop(self) -> None:
        sqs = emulated("sqs", self.port)
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=self.queue)["QueueUrl"])

    def renamed(self, topic: str) -> "Sqs":
        return replace(self, topic=topic)

    def through(self, port: int) -> "Sqs":
        return replace(self, port=port)

    def connect(self, seat: Seat) -> "SqsClient":
        return SqsClient(self, seat)


class SqsClient:
    """A message of SQS is text: each byte of a value becomes a letter, so the size stays."""

    def __init__(self, rival: Sqs, seat: Seat) -> None:
        self._is_fifo = rival.is_fifo
        self._threads = 1 if seat.is_prompt else seat.threads
        self.chunk = BATCH * self._threads
        self._calling = CallingThreads("sqs", rival.port, self._threads)
        self._url = self._calling.boto.get_queue_url(QueueName=rival.queue)["QueueUrl"]
        self._client = secrets.token_hex(8)
        self._numbers = count()

    @property
    def calls(self) -> int:
        return self._calling.calls

    def send(self, values: Sequence[bytes]) -> None:
        for begin in range(0, len(values), BATCH):
            self._calling.begin(partial(self._put, [self._entry(each) for each in values[begin : begin + BATCH]]))

    def flush(self) -> None:
        self._calling.finish()

    def receive(self) -> int:
        return sum(self._calling.each([self._take] * self._threads))

    def close(self) -> None:
        self._calling.close()

    def _entry(self, value: bytes) -> dict[str, str]:
        number = next(self._numbers)
        entry = {"Id": str(number % BATCH), "MessageBody": value.translate(_LETTERS).decode("ascii")}
        if self._is_fifo:
            entry |= {"MessageGroupId": str(number % _GROUPS), "MessageDeduplicationId": f"{self._client}-{number}"}
        return entry

    def _put(self, entries: Sequence[object]) -> None:
        answer = self._calling.boto.send_message_batch(QueueUrl=self._url, Entries=entries)
        if answer.get("Failed"):
            raise RuntimeError(f"SQS refused messages: {answer['Failed'][0]}")

    def _take(self) -> int:
        found = self._calling.boto.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=_WAIT_S
        ).get("Messages", [])
        if found:
            handles = [{"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]} for place, each in enumerate(found)]
            self._calling.boto.delete_message_batch(QueueUrl=self._url, Entries=handles)
        return len(found)


_LETTERS = bytes(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[each % 64] for each in range(256))
