"""FastStream's Kafka brokers, over aiokafka and over confluent-kafka. They publish, and subscribe in groups."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker

from tests.end_to_end.kafka.clients.client import CALL_S


class FastStream:
    """One kind of broker."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self.kind = kind

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        async def work() -> None:
            async with self.broker(servers, is_idempotent=is_idempotent) as broker:
                sent = [await broker.publish(value, topic, partition=0, no_confirm=True) for value in values]
                await asyncio.gather(*sent)

        asyncio.run(work())

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        async def work() -> list[str]:
            found: list[str] = []
            is_done = asyncio.Event()
            broker = self.broker(servers)

            async def take(value: str) -> None:
                found.append(value)
                if len(found) >= count:
                    is_done.set()

            broker.subscriber(topic, group_id=group, auto_offset_reset="earliest")(take)
            async with broker:
                await broker.start()
                async with asyncio.timeout(CALL_S):
                    await is_done.wait()
            return found

        return asyncio.run(work())

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        pytest.skip("FastStream seeks by its underlying client, which has a row of its own")

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        pytest.skip("FastStream has no transactions")

    def create(self, servers: str, topic: str, partitions: int) -> int:
        pytest.skip("FastStream's brokers create topics only by asking for them")

    def broker(self, servers: str, *, is_idempotent: bool = True) -> Any:
        """A broker that has not started."""
        if self.kind is KafkaBroker:
            return self.kind(servers, enable_idempotence=is_idempotent, acks="all")
        return self.kind(servers, config={"enable.idempotence": is_idempotent, "acks": "all"})


KINDS: dict[str, Callable[..., Any]] = {"faststream": KafkaBroker, "faststream confluent": ConfluentBroker}
