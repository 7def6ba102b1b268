import asyncio

import pytest

from penstock.http.async_client import AsyncClient
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Uuid
from penstock_kafka.service.topic_directory import TopicDirectory, uuid_of


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
