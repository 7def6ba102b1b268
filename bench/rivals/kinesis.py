"""Kinesis by boto3: PutRecords with 500 records, GetRecords with up to 10,000."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.rivals.aws_client import CallingThreads, emulated
from bench.rivals.penstock_sdk import PARTITIONS
from bench.rivals.rival import Seat

PUT_RECORDS_MAX = 500
_POLL_S = 0.2  # AWS takes five reads a second of a shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinesis:
    """A stream with as many shards as Penstock's topic has partitions."""

    port: int
    topic: str = ""
    name: str = "Kinesis"
    threads: tuple[int, ...] = (1, 2, 4, 8)

    def make(self) -> None:
        boto = emulated("kinesis", self.port)
        boto.create_stream(StreamName=self.topic, ShardCount=PARTITIONS)
        boto.get_waiter("stream_exists").wait(StreamName=self.topic, WaiterConfig={"Delay": 1})

    def drop(self) -> None:
        emulated("kinesis", self.port).delete_stream(StreamName=self.topic)

    def renamed(self, topic: str) -> "Kinesis":
        return replace(self, topic=topic)

    def through(self, port: int) -> "Kinesis":
        return replace(self, port=port)

    def connect(self, seat: Seat) -> "KinesisClient":
        return KinesisClient(self, seat)


class KinesisClient:
    """Reads its share of the shards. Keeps no positions: Kinesis has none, its library writes them to DynamoDB."""

    chunk = PUT_RECORDS_MAX

    def __init__(self, rival: Kinesis, seat: Seat) -> None:
        self._stream = rival.topic
        self._is_prompt = seat.is_prompt
        self._calling = CallingThreads("kinesis", rival.port, seat.threads)
        shards = self._calling.boto.list_shards(StreamName=rival.topic)["Shards"][seat.number :: seat.of]
        self._iterators = [self._first(shard["ShardId"]) for shard in shards]

    @property
    def calls(self) -> int:
        return self._calling.calls

    def send(self, values: Sequence[bytes]) -> None:
        records = [{"Data": value, "PartitionKey": str(random.random())} for value in values]
        self._calling.begin(partial(self._put, records))

    def flush(self) -> None:
        self._calling.finish()

    def receive(self) -> int:
        if not self._iterators:
            return 0
        answers = self._calling.each(partial(self._get, iterator) for iterator in self._iterators)
        self._iterators = [iterator for iterator, _ in answers]
        found = sum(count for _, count in answers)
        if not found or self._is_prompt:
            time.sleep(_POLL_S)
        return found

    def close(self) -> None:
        self._calling.close()

    def _first(self, shard: str) -> str:
        answer = self._calling.boto.get_shard_iterator(
            StreamName=self._stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )
        return str(answer["ShardIterator"])

    def _get(self, iterator: str) -> tuple[str, int]:
        answer = self._calling.boto.get_records(ShardIterator=iterator, Limit=10_000)
        return answer["NextShardIterator"], len(answer["Records"])

    def _put(self, records: Sequence[object]) -> None:
        answer = self._calling.boto.put_records(StreamName=self._stream, Records=records)
        if answer["FailedRecordCount"]:
            raise RuntimeError(f"Kinesis refused {answer['FailedRecordCount']} of {len(records)} records")
