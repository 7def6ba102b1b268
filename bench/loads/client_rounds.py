"""Rounds of the SDK's clients on one checkout, with a service that answers at once: tells their CPU.

`bench/clients/cpu.py` runs it with the packages of this checkout or of an older one. It reads one request a line, and
answers each by a line: `{"work": "poll", "compression": "none", "records": 1000}` by `{"cpu_s": 0.001}`.

    python -m bench.loads.client_rounds RECORDS
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock import AsyncProducer, Consumer, Producer, TopicPartition
from penstock.http.http_message import Response
from penstock.producer.settings import CompressionName
from penstock.testing import MemoryPenstock, MemoryTransport
from penstock_core.records import frame

COMPRESSIONS: tuple[CompressionName, ...] = ("none", "zstd")
VALUE = bytes(range(100))
HELD_S = 0.2
_WITH_RECORDS_BYTES = 1_000  # an answer without records is shorter
_PARTITIONS = 4


class AnswersAtOnce:
    """Knows each answer to a fetch by its offset, and takes each produce request.

    It holds a fetch at the end of the log for a while, as the service does: else the consumer would ask all the time.
    """

    def __init__(self, inner: MemoryTransport) -> None:
        self._inner = inner
        self._fetched: dict[int, Response] = {}
        self._has_ended = threading.Event()
        self.is_storing = True

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/produce" and not self.is_storing:
            batches: Any = frame.decode(body)[0]["batches"]
            return Response(200, {}, json.dumps({"results": [{"base_offset": 0} for _ in batches]}).encode())
        if path != "/v1/fetch":
            return self._inner.call(method, path, query, headers, body)
        offset = int(json.loads(body)["partitions"][0]["offset"])
        if offset not in self._fetched:
            self._fetched[offset] = self._inner.call(method, path, query, headers, body)
        if len(self._fetched[offset].body) < _WITH_RECORDS_BYTES:
            self._has_ended.wait(HELD_S)
        return self._fetched[offset]

    def close(self) -> None:
        pass


class Rounds:
    """A topic for each compression, whose first partition has records to read. No key comes twice."""

    def __init__(self, service: MemoryPenstock, records: int) -> None:
        self._keys = 0
        self._works: dict[str, Callable[[CompressionName, AnswersAtOnce, int], float]] = {
            "send, no key": _send,
            "send, distinct keys": self._send_keys,
            "send by asyncio, no key": _send_async,
            "poll": _poll,
            "iterate": _iterate,
        }
        self._transports: dict[str, AnswersAtOnce] = {}
        for compression in COMPRESSIONS:
            service.create_topic(compression, partitions=_PARTITIONS)
            transport = self._transports[compression] = AnswersAtOnce(service.transport)
            with Producer(transport=transport, compression_type=compression) as producer:
                for _ in range(records):
                    producer.send(compression, VALUE, partition=0)
            transport.is_storing = False

    def round(self, work: str, compression: CompressionName, records: int) -> float:
        """The CPU seconds of a client from its start to its close, of all threads."""
        return self._works[work](compression, self._transports[compression], records)

    def _send_keys(self, compression: CompressionName, transport: AnswersAtOnce, records: int) -> float:
        keys = [b"customer-%d" % number for number in range(self._keys, self._keys + records)]
        self._keys += records
        begun_s = time.process_time()
        with Producer(transport=transport, compression_type=compression) as producer:
            for key in keys:
                producer.send(compression, VALUE, key=key)
        return time.process_time() - begun_s


def _send(compression: CompressionName, transport: AnswersAtOnce, records: int) -> float:
    begun_s = time.process_time()
    with Producer(transport=transport, compression_type=compression) as producer:
        for _ in range(records):
            producer.send(compression, VALUE)
    return time.process_time() - begun_s


def _send_async(compression: CompressionName, transport: AnswersAtOnce, records: int) -> float:
    class AnswersInLoop:
        async def call(self, *request: Any) -> Any:
            return transport.call(*request)

        async def close(self) -> None:
            pass

    async def send() -> None:
        async with AsyncProducer(transport=AnswersInLoop(), compression_type=compression) as producer:
            for _ in range(records):
                await producer.send(compression, VALUE)

    begun_s = time.process_time()
    asyncio.run(send())
    return time.process_time() - begun_s


def _poll(compression: CompressionName, transport: AnswersAtOnce, records: int) -> float:
    begun_s, left = time.process_time(), records
    with Consumer(transport=transport) as consumer:
        consumer.assign([TopicPartition(compression, 0)])
        while left > 0:
            left -= len(consumer.poll())
    return time.process_time() - begun_s


def _iterate(compression: CompressionName, transport: AnswersAtOnce, records: int) -> float:
    begun_s, left = time.process_time(), records
    with Consumer(transport=transport) as consumer:
        consumer.assign([TopicPartition(compression, 0)])
        for _ in consumer:
            left -= 1
            if not left:
                break
    return time.process_time() - begun_s


def main(records: int) -> None:
    """Answer the requests of standard input until it ends."""
    with MemoryPenstock() as service:
        rounds = Rounds(service, records)
        print(json.dumps({"is_ready": True}), flush=True)
        for line in sys.stdin:
            request: Mapping[str, Any] = json.loads(line)
            print(json.dumps({"cpu_s": rounds.round(**request)}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
