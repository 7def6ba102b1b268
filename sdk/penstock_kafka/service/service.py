"""One client of the service for all connections of the gateway.

The gateway remembers topics by name and by id, for a short time.

Refuses records without a key that a client has sent to a compacted topic.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from itertools import islice

from penstock.api.calls import list_topics, topic_metadata
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport
from penstock.http.http_message import HttpRequest, Response
from penstock.http.steps import Calls, Result
from penstock.model import Topic
from penstock.retry import RetryPolicy
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_RECORD_ERRORS_MAX, READ_DECODED_BYTES_MAX, TOPICS_MAX
from penstock_core.records.record_batch import BytesLike
from penstock_core.records.record_check import DecodeBudget, keyless_records
from penstock_kafka.dispatch.api import Uuid

TOPIC_AGE_MS_MAX = 5_000  # of a topic that is told to clients: changes of topics take ten seconds anyway
_UUID_DIGITS = 32
LIST_AGE_MS_MAX = 2_000  # of the list of topics, which several clients ask for at once


class Service:
    """Calls the service. Raises the classes of penstock.errors. `topics` is what the gateway knows of topics."""

    def __init__(self, transport: AsyncTransport, *, retry: RetryPolicy | None = None) -> None:
        self.client = AsyncClient(transport, retry=retry)
        self.topics = TopicDirectory(self.client)

    async def call(self, calls: Calls[Result]) -> Result:
        """Carry out a procedure of penstock.api, with retries."""
        return await self.client.call(calls)

    async def try_once(self, request: HttpRequest) -> Response:
        """One try of a request. The caller decides about another."""
        return await self.client.try_once(request)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()


class TopicDirectory:
    """Topics as the service described them last."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._topics: dict[str, tuple[Topic, int]] = {}
        self._names: dict[Uuid, str] = {}
        self._heard: OrderedDict[str, tuple[bool, int]] = OrderedDict()  # a name has no topic; since when it is so
        self._asked: dict[str, asyncio.Task[Topic]] = {}  # by name: clients that ask together share one call
        self._listed_at_ms = -LIST_AGE_MS_MAX
        self._listing = asyncio.Lock()
        self._changes = 0  # that the gateway knows of: a list that was begun before one is not kept
        self._list: list[Topic] = []

    async def topic(self, name: str) -> Topic:
        """The topic, a few seconds old at most. Raises UNKNOWN_TOPIC and what else the service answers."""
        if self.is_known(name):
            return self._topics[name][0]
        if name not in self._asked:
            self._asked[name] = asyncio.get_running_loop().create_task(self._ask(name), name="penstock-kafka-topic")
            self._asked[name].add_done_callback(partial(self._told, name))
        return await asyncio.shield(self._asked[name])  # a client that goes leaves the call to the others

    def is_known(self, name: str) -> bool:
        """`topic` tells it without a call."""
        known = self._topics.get(name)
        return known is not None and monotonic_ms() - known[1] <= TOPIC_AGE_MS_MAX

    async def topics(self) -> list[Topic]:
        """All topics, sorted by name, a few seconds old at most."""
        async with self._listing:
            if monotonic_ms() - self._listed_at_ms > LIST_AGE_MS_MAX:
                changes, asked_ms = self._changes, monotonic_ms()
                self._list = await self._client.call(list_topics())
                if changes == self._changes:
                    self._listed_at_ms = asked_ms
                self.remember(self._list, asked_ms)
            return self._list

    async def name_of(self, topic_id: Uuid) -> str | None:
        """The name of the topic with this id; None if there is none. It may list all topics."""
        if topic_id not in self._names:
            await self.topics()
        return self._names.get(topic_id)

    def remember(self, topics: Iterable[Topic], asked_ms: int | None = None) -> None:
        """Take what the service has said. Its age counts from the question; by default from now."""
        asked_ms = monotonic_ms() if asked_ms is None else asked_ms
        for topic in topics:
            if len(self._topics) >= TOPICS_MAX and topic.name not in self._topics:
                self._topics.clear()
                self._names.clear()
            known = self._topics.get(topic.name)
            is_other = known is not None and _shape(known[0]) != _shape(topic)
            self._hear(topic.name, is_gone=False, is_other=is_other)
            self._topics[topic.name] = (topic, asked_ms)
            self._names[uuid_of(topic)] = topic.name

    def changed_ms(self, name: str) -> int:
        """When the gateway heard that the topic is gone, came, or got partitions; -1 if it heard of no change."""
        return self._heard[name][1] if name in self._heard else -1

    def forget(self, name: str) -> None:
        """The topic has changed or is gone: ask anew."""
        known = self._topics.pop(name, None)
        if known is not None:
            self._names.pop(uuid_of(known[0]), None)
        self._asked.pop(name, None)  # its answer may be the old one
        self._hear(name, is_gone=True)
        self._forget_list()

    def changed(self, topic: Topic) -> None:
        """The gateway has created or changed the topic, and the service has answered this."""
        self.forget(topic.name)
        self.remember([topic])

    def _hear(self, name: str, *, is_gone: bool, is_other: bool = False) -> None:
        was_gone, _ = self._heard.get(name, (False, -1))
        if is_other or is_gone != was_gone:
            self._heard[name] = (is_gone, monotonic_ms())
            if len(self._heard) > TOPICS_MAX:
                self._heard.popitem(last=False)

    def _forget_list(self) -> None:
        self._changes += 1
        self._listed_at_ms = -LIST_AGE_MS_MAX

    async def _ask(self, name: str) -> Topic:
        asked_ms = monotonic_ms()
        try:
            topic = await self._client.call(topic_metadata(name))
        except PenstockError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC:
                self.forget(name)
            raise
        self.remember([topic], asked_ms)
        return topic

    def _told(self, name: str, task: "asyncio.Task[Topic]") -> None:
        if self._asked.get(name) is task:
            del self._asked[name]
        if not task.cancelled():
            task.exception()  # those that still wait raise it


def _shape(topic: Topic) -> tuple[str, int]:
    return topic.topic_id, topic.partitions


def uuid_of(topic: Topic) -> Uuid:
    """The topic's id as Kafka has it: Penstock's 80 bits, and zeros."""
    return Uuid(hex=topic.topic_id.ljust(_UUID_DIGITS, "0"))


async def keyless_error(topics: TopicDirectory, name: str, data: BytesLike) -> PenstockError | None:
    """The refusal of batches with records without a key, if the topic is compacted; it may ask for the topic.

    An error that another try may heal is returned, too. After any other one the append tells what is wrong.
    `facts["keyless"]` has the places of the records, the first ones if there are many.
    """
    try:
        topic = await topics.topic(name)
    except PenstockError as error:
        return error if error.code.is_retriable else None
    if not topic.is_compacted:
        return None
    found = islice(keyless_records(data, DecodeBudget(READ_DECODED_BYTES_MAX)), KAFKA_RECORD_ERRORS_MAX)
    return PenstockError(
        ErrorCode.INVALID_RECORD,
        f"topic {name!r} is compacted, and takes no records without a key",
        keyless=[*found],
    )
