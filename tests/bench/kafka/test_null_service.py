import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientSession, web

from bench.kafka.null_service import TOPIC, app_of
from penstock.testing import MemoryPenstock
from penstock_core.limits import MIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import walk

RECORDS = 20_000


@pytest.fixture
def memory() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic(TOPIC, partitions=2)
        yield service


def call(memory: MemoryPenstock, path: str, *bodies: bytes | dict[str, object]) -> list[bytes]:
    async def run() -> list[bytes]:
        runner = web.AppRunner(app_of(memory, RECORDS))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        async with ClientSession() as session:
            answers = []
            for body in bodies:
                data: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
                async with session.post(url, **data) as answer:
                    assert answer.status == 200
                    answers.append(await answer.read())
        await runner.cleanup()
        return answers

    return asyncio.run(run())


def test_offsets_of_produced_batches_rise(memory: MemoryPenstock) -> None:
    batch = encode([NewRecord(1, None, b"x")] * 7)
    body = frame.encode({"batches": [{"topic": TOPIC, "partition": 1, "length": len(batch)}]}, [batch])
    first, second = call(memory, "/v1/produce", body, body)
    assert b'"base_offset": 0' in first
    assert b'"base_offset": 7' in second


def test_fetch_reads_dense_offsets_to_the_end(memory: MemoryPenstock) -> None:
    offset, seen = 0, 0
    while offset < RECORDS:
        wanted = {"topic": TOPIC, "partition": 0, "offset": offset, "max_bytes": MIB}
        (answer,) = call(memory, "/v1/fetch", {"partitions": [wanted], "max_bytes": MIB, "wait_ms": 0})
        header, data = frame.decode(answer)
        for _, batch in walk(bytes(data)):
            assert batch.base_offset == seen
            seen += batch.record_count
        partitions = header["partitions"]
        assert isinstance(partitions, list)
        offset = partitions[0]["next_offset"]
    assert seen == RECORDS
