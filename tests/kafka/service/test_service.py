import asyncio
from collections.abc import Mapping

import pytest

from penstock.http.async_client import AsyncClient
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Uuid
from penstock_kafka.service import service
from penstock_kafka.service.service import TOPIC_AGE_MS_MAX, TopicDirectory, uuid_of


def test_topic_is_found_by_name_and_by_id_until_it_is_gone() -> None:
    async def run() -> None:
        with MemoryPenstock() as service:
            topic = service.create_topic("orders", partitions=2)
            directory = TopicDirectory(AsyncClient(ThreadedTransport(service.transport)))
            assert await directory.name_of(uuid_of(topic)) == "orders"
            assert await directory.name_of(Uuid(int=5)) is None
            assert (await directory.topic("orders")).partitions == 2
            service.admin().delete_topic("orders")
            directory.forget("orders")
            assert await directory.name_of(uuid_of(topic)) is None
            with pytest.raises(PenstockError, match="UNKNOWN_TOPIC"):
                await directory.topic("orders")

    asyncio.run(run())


def test_age_of_a_topic_counts_from_the_question_and_not_from_a_slow_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0
    monkeypatch.setattr(service, "monotonic_ms", lambda: now_ms)

    class SlowTransport(ThreadedTransport):
        async def call(
            self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
        ) -> Response:
            nonlocal now_ms
            found = await super().call(method, path, query, headers, body)
            now_ms += TOPIC_AGE_MS_MAX
            return found

    async def run() -> None:
        nonlocal now_ms
        with MemoryPenstock() as service:
            service.create_topic("orders")
            directory = TopicDirectory(AsyncClient(SlowTransport(service.transport)))
            await directory.topic("orders")
            assert directory.is_known("orders")
            now_ms += 1
            assert not directory.is_known("orders")

    asyncio.run(run())


class _CountingTransport(ThreadedTransport):
    """Counts calls."""

    calls = 0

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.calls += 1
        return await super().call(method, path, query, headers, body)


def test_clients_that_ask_together_share_one_call_and_its_error() -> None:
    async def run() -> None:
        with MemoryPenstock() as service:
            service.create_topic("orders", partitions=2)
            transport = _CountingTransport(service.transport)
            directory = TopicDirectory(AsyncClient(transport))
            leaving = asyncio.ensure_future(directory.topic("orders"))
            staying = [asyncio.ensure_future(directory.topic("orders")) for _ in range(50)]
            await asyncio.sleep(0)
            leaving.cancel()
            assert {topic.partitions for topic in await asyncio.gather(*staying)} == {2}
            assert transport.calls == 1
            found = await asyncio.gather(*[directory.topic("none") for _ in range(50)], return_exceptions=True)
            assert {str(each)[:13] for each in found} == {"UNKNOWN_TOPIC"}
            assert transport.calls == 2

    asyncio.run(run())


def test_topic_that_has_changed_is_asked_for_anew_while_an_older_answer_is_on_its_way() -> None:
    async def run() -> None:
        with MemoryPenstock() as service:
            service.create_topic("orders", partitions=2)
            transport = _CountingTransport(service.transport)
            directory = TopicDirectory(AsyncClient(transport))
            before = asyncio.ensure_future(directory.topic("orders"))
            await asyncio.sleep(0)
            directory.forget("orders")
            await directory.topic("orders")
            await before
            assert transport.calls == 2

    asyncio.run(run())


def test_list_has_a_topic_that_the_gateway_has_just_created() -> None:
    async def run() -> None:
        with MemoryPenstock() as service:
            directory = TopicDirectory(AsyncClient(ThreadedTransport(service.transport)))
            assert await directory.topics() == []
            listing = asyncio.ensure_future(directory.topics())
            directory.changed(service.create_topic("orders", partitions=2))
            await listing
            assert [topic.name for topic in await directory.topics()] == ["orders"]

    asyncio.run(run())
