"""Gateways without sockets in front of a service in memory: a desk is one, and a client goes to any of them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from crc32c import crc32c
from kio.index import load_request_schema

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.retry import RetryPolicy
from penstock.testing import MemoryPenstock
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.record_batch import Compression
from penstock_kafka.apis import groups_apis, produce_apis, transactions_apis
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import ApiKey, Call, Peer, Registry
from penstock_kafka.dispatch.messages import entity_of
from penstock_kafka.service.service import Service
from penstock_kafka.transactions.epochs.producers import Producers, open_producers
from tests.kafka.running_gateway import SETTINGS

Result = TypeVar("Result")

Judge = Callable[[str, bytes], str]  # of a path and a body: "" carries it, "before" and "after" lose it


@dataclass(slots=True)
class LossyTransport:
    """Loses requests, or answers to requests that were carried out."""

    inner: Transport
    judge: Judge

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Raises ConnectionFailedError for what is lost."""
        fate = self.judge(path, body)
        if fate == "before":
            raise _lost()
        response = self.inner.call(method, path, query, headers, body)
        if fate == "after":
            raise _lost()
        return response

    def close(self) -> None:
        """The inner one is closed by the service."""


@dataclass(slots=True)
class InlineTransport:
    """Calls in the loop's own thread: the order of events is the test's."""

    inner: Transport

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """As the inner one."""
        return self.inner.call(method, path, query, headers, body)

    async def close(self) -> None:
        """The inner one is closed by the service."""


@dataclass(slots=True, kw_only=True)
class Client:
    """A transactional producer, as its library keeps its numbers."""

    name: str = "t"
    producer_id: int = -1
    epoch: int = -1
    following: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def ids(self) -> dict[str, object]:
        """The fields of most requests."""
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}


class TransactionDesk:
    """One gateway. Codes are answered by their names."""

    def __init__(self, service: MemoryPenstock, judge: Judge | None = None) -> None:
        transport = service.transport if judge is None else LossyTransport(service.transport, judge)
        client = Service(InlineTransport(transport), retry=RetryPolicy(backoff_ms=1, backoff_max_ms=1))
        client.client._timeout_ms = 20  # tries of one call end soon
        self.context = Context(service=client, settings=SETTINGS)
        self.peer = Peer(number=1, address="test")
        self._registry = Registry(
            [*groups_apis(self.context), *produce_apis(self.context), *transactions_apis(self.context)]
        )

    @property
    def producers(self) -> Producers:
        """The producers that this gateway has begun."""
        return open_producers(self.context)

    async def ask(self, key: ApiKey, version: int, **fields: object) -> dict[str, Any]:
        """The answer to a request with these fields."""
        api = self._registry.find(key, version)
        assert api is not None
        request = entity_of(load_request_schema(key, version), fields)
        answer = await api.handler(Call(key=key, version=version, client_id="", peer=self.peer, request=request))
        assert answer is not None
        return dict(answer)

    async def begin(self, client: Client, *, anew: bool = False, timeout_ms: int = 60_000) -> str:
        """InitProducerId, as a new instance or from the last epoch."""
        if anew:
            client.producer_id = client.epoch = -1
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 4, **client.ids, transaction_timeout=timeout_ms)
        if answer["error_code"].name == "none":
            client.producer_id, client.epoch = answer["producer_id"], answer["producer_epoch"]
            client.following.clear()
        return str(answer["error_code"].name)

    async def add(self, client: Client, *places: tuple[str, int], version: int = 3) -> str:
        """AddPartitionsToTxn: the code of the last partition."""
        answer = await self.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            **{f"v3_and_below_{name}": value for name, value in client.ids.items()},
            v3_and_below_topics=[{"name": topic, "partitions": [number]} for topic, number in places],
        )
        found = [each for topic in answer["results_by_topic_v3_and_below"] for each in topic["results_by_partition"]]
        return str(found[-1]["partition_error_code"].name)

    async def produce(
        self, client: Client, place: tuple[str, int], *values: str, sequence: int | None = None, version: int = 10
    ) -> str:
        """One batch. The client's next sequence goes on if it was taken."""
        first = client.following.get(place, 0) if sequence is None else sequence
        data = transactional_batch(client, first, values)
        answer = await self.ask(
            ApiKey.PRODUCE,
            version,
            transactional_id=client.name,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": place[0], "partition_data": [{"index": place[1], "records": data}]}],
        )
        code = answer["responses"][0]["partition_responses"][0]["error_code"].name
        if code == "none" and sequence is None:
            client.following[place] = first + len(values)
        return str(code)

    async def send_offsets(self, client: Client, offsets: Mapping[int, int], **member: object) -> str:
        """AddOffsetsToTxn and TxnOffsetCommit for partitions of `orders`, in group `g`."""
        added = await self.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **client.ids, group_id="g")
        if added["error_code"].name != "none":
            return str(added["error_code"].name)
        partitions = [{"partition_index": number, "committed_offset": offset} for number, offset in offsets.items()]
        answer = await self.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            4,
            **client.ids,
            group_id="g",
            topics=[{"name": "orders", "partitions": partitions}],
            **{"generation_id": -1, "member_id": "", **member},
        )
        return str(answer["topics"][0]["partitions"][0]["error_code"].name)

    async def end(self, client: Client, *, commit: bool, version: int = 4) -> str:
        """EndTxn."""
        answer = await self.ask(ApiKey.END_TXN, version, **client.ids, committed=commit)
        return str(answer["error_code"].name)

    async def close(self) -> None:
        """The gateway ends. It loses what it has in memory."""
        await self.context.close()


def transactional_batch(client: Client, first_sequence: int, values: tuple[str, ...]) -> bytes:
    """A batch as a transactional producer sends it."""
    builder = BatchBuilder(Compression.NONE, batch_bytes=1_000_000)
    for each in values:
        assert builder.append(1_700_000_000_000, None, each.encode())
    data = bytearray(
        builder.build(producer_id=client.producer_id, producer_epoch=client.epoch, base_sequence=first_sequence)
    )
    data[22] |= 0x10
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's work in a loop of its own."""
    return asyncio.run(work)


def values(service: MemoryPenstock, topic: str = "orders") -> list[str]:
    """The values that readers see, sorted."""
    return sorted((each.value or b"").decode() for each in service.records(topic))


def _lost() -> ConnectionFailedError:
    return ConnectionFailedError("the connection broke", maybe_applied=True)
