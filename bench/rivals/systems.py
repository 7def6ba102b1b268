"""The systems of the comparison: Penstock by its SDK, and Kinesis by boto3.

A system makes and drops its topic or stream, and connects clients. It is passed to other processes, so it holds
names and ports only.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import boto3

from localstack.clients import REGION, ROOT_KEY, endpoint_url
from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.http.named_transport import HTTP, TransportName, module_of
from penstock.http.transport import Transport, open_transport

Answer = TypeVar("Answer")

PARTITIONS = 4  # and shards
_POLL_RECORDS = 10_000  # as many as one GetRecords of Kinesis
_KINESIS_RECORDS, _KINESIS_POLL_S = 500, 0.2  # in one PutRecords; AWS takes five reads a second of a shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One of several clients."""

    number: int = 0
    of: int = 1


class Client(Protocol):
    """A client of one process."""

    chunk: int  # records that one `send` should have

    def send(self, values: Sequence[bytes]) -> None:
        """Returns when the client takes more records."""

    def flush(self) -> None:
        """Returns when all that was sent is acknowledged."""

    def receive(self) -> int:
        """Reads some records and acknowledges them, where the system has that. Returns 0 after about half a second."""

    def close(self) -> None: ...


class System(Protocol):
    """One system of the comparison. All methods take the name of a topic or stream."""

    @property
    def name(self) -> str: ...

    def make(self, topic: str) -> None: ...

    def drop(self, topic: str) -> None:
        """Removes it with its records."""

    def connect(self, topic: str, seat: Seat) -> Client: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Penstock:
    """The configured stage, by a transport, with the SDK's defaults but for compression: random values stay long."""

    name: str
    carrier: TransportName = HTTP

    def make(self, topic: str) -> None:
        with Admin(transport=self.transport()) as admin:
            admin.create_topic(topic, partitions=PARTITIONS)

    def drop(self, topic: str) -> None:
        with Admin(transport=self.transport()) as admin:
            admin.delete_topic(topic)

    def connect(self, topic: str, seat: Seat) -> "PenstockClient":
        return PenstockClient(self.transport(), topic, seat)

    def transport(self) -> Transport:
        return open_transport() if self.carrier == HTTP else module_of(self.carrier).open_transport()


class PenstockClient:
    """A producer, and a consumer that begins with the first `receive`."""

    chunk = 500

    def __init__(self, transport: Transport, topic: str, seat: Seat) -> None:
        self._topic = topic
        self._producer = Producer(transport=transport, compression_type="none")
        self._consumer = Consumer(transport=transport, max_poll_records=_POLL_RECORDS)
        self._partitions = [TopicPartition(topic, each) for each in range(PARTITIONS)][seat.number :: seat.of]
        self._is_reading = False

    def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.send(self._topic, value)

    def flush(self) -> None:
        self._producer.flush()

    def receive(self) -> int:
        if not self._is_reading:
            self._consumer.assign(self._partitions)
            self._is_reading = True
        return len(self._consumer.poll(timeout_ms=500))

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


def emulated(service: str, port: int) -> Any:
    """A client of the emulator."""
    return boto3.client(
        service,
        endpoint_url=endpoint_url(port),
        region_name=REGION,
        aws_access_key_id=ROOT_KEY,
        aws_secret_access_key=ROOT_KEY,
    )


class _CallingThreads:
    """Up to `threads` calls at once. `begin` waits while all threads have work."""

    def __init__(self, service: str, port: int, threads: int) -> None:
        self.boto = emulated(service, port)
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads)
        self._begun: set[Future[object]] = set()

    def begin(self, call: Callable[[], object]) -> None:
        """Starts a call. Raises what an earlier one raised."""
        while len(self._begun) >= self._threads:
            self._take(wait(self._begun, return_when=FIRST_COMPLETED).done)
        self._begun.add(self._executor.submit(call))

    def flush(self) -> None:
        """Returns when no call is under way."""
        self._take(wait(self._begun).done)

    def each(self, calls: Iterable[Callable[[], Answer]]) -> list[Answer]:
        """The answers of all calls."""
        return list(self._executor.map(lambda call: call(), calls))

    def close(self) -> None:
        self._executor.shutdown()
        self.boto.close()

    def _take(self, done: set[Future[object]]) -> None:
        self._begun -= done
        for each in done:
            each.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinesis:
    """A stream with as many shards as Penstock's topic has partitions."""

    port: int
    name: str = "Kinesis"
    threads: int = 4  # the best of 1 to 8

    def make(self, topic: str) -> None:
        boto = emulated("kinesis", self.port)
        boto.create_stream(StreamName=topic, ShardCount=PARTITIONS)
        boto.get_waiter("stream_exists").wait(StreamName=topic, WaiterConfig={"Delay": 1})

    def drop(self, topic: str) -> None:
        emulated("kinesis", self.port).delete_stream(StreamName=topic)

    def connect(self, topic: str, seat: Seat) -> "KinesisClient":
        return KinesisClient(_CallingThreads("kinesis", self.port, self.threads), topic, seat)


class KinesisClient:
    """Reads its share of the shards. Keeps no positions: Kinesis has none, its library writes them to DynamoDB."""

    chunk = _KINESIS_RECORDS

    def __init__(self, calling: _CallingThreads, stream: str, seat: Seat) -> None:
        self._calling, self._stream = calling, stream
        shards = calling.boto.list_shards(StreamName=stream)["Shards"][seat.number :: seat.of]
        self._iterators = [self._first(shard["ShardId"]) for shard in shards]
        self.flush, self.close = calling.flush, calling.close

    def send(self, values: Sequence[bytes]) -> None:
        records = [{"Data": value, "PartitionKey": str(random.random())} for value in values]
        self._calling.begin(partial(self._put, records))

    def receive(self) -> int:
        if not self._iterators:
            return 0
        answers = self._calling.each(partial(self._get, iterator) for iterator in self._iterators)
        self._iterators = [iterator for iterator, _ in answers]
        found = sum(records for _, records in answers)
        if not found:
            time.sleep(_KINESIS_POLL_S)
        return found

    def _first(self, shard: str) -> str:
        answer = self._calling.boto.get_shard_iterator(
            StreamName=self._stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )
        return str(answer["ShardIterator"])

    def _get(self, iterator: str) -> tuple[str, int]:
        answer = self._calling.boto.get_records(ShardIterator=iterator, Limit=_POLL_RECORDS)
        return answer["NextShardIterator"], len(answer["Records"])

    def _put(self, records: Sequence[object]) -> None:
        answer = self._calling.boto.put_records(StreamName=self._stream, Records=records)
        if answer["FailedRecordCount"]:
            raise RuntimeError(f"Kinesis refused {answer['FailedRecordCount']} of {len(records)} records")
