"""Redis Streams: XADD in pipelines, XREADGROUP and XACK, with a file that is synced before each answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import redis

from bench.rivals.rival import Seat

_READ_RECORDS = 1_000
_GROUP = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStreams:
    """One stream with one group."""

    port: int
    topic: str = ""
    name: str = "Redis Streams"
    threads: tuple[int, ...] = (1,)

    def make(self) -> None:
        with redis.Redis(port=self.port) as client:
            client.xgroup_create(self.topic, _GROUP, id="0", mkstream=True)

    def drop(self) -> None:
        with redis.Redis(port=self.port) as client:
            client.delete(self.topic)

    def renamed(self, topic: str) -> "RedisStreams":
        return replace(self, topic=topic)

    def through(self, port: int) -> "RedisStreams":
        return replace(self, port=port)

    def connect(self, seat: Seat) -> "RedisClient":
        return RedisClient(self, seat)


class RedisClient:
    """One connection. A pipeline is one write to the socket, with a command for each record."""

    chunk = 500
    calls = None

    def __init__(self, rival: RedisStreams, seat: Seat) -> None:
        self._redis = redis.Redis(port=rival.port)
        self._stream = rival.topic
        self._name = f"c-{seat.number}"

    def send(self, values: Sequence[bytes]) -> None:
        with self._redis.pipeline(transaction=False) as pipeline:
            for value in values:
                pipeline.xadd(self._stream, {b"v": value})
            pipeline.execute()

    def flush(self) -> None:
        """Nothing: each pipeline returns when all of it is on the disk."""

    def receive(self) -> int:
        found = self._redis.xreadgroup(_GROUP, self._name, {self._stream: ">"}, count=_READ_RECORDS, block=500)
        if not found:
            return 0
        ids = [number for number, _ in found[0][1]]
        self._redis.xack(self._stream, _GROUP, *ids)
        return len(ids)

    def close(self) -> None:
        self._redis.close()
