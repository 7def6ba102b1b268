"""A stand-in for the service that stores nothing: the gateway in front of it shows its own ceiling.

    python -m bench.kafka.null_service PARTITIONS RECORDS

It prints its URL. It answers metadata as a service in memory does. A produce gets the next offsets and is forgotten. A
fetch gets the same megabyte of records again and again, up to RECORDS in each partition.
"""

import asyncio
import json
import os
import sys

from aiohttp import web

from bench.kafka.librdkafka import RECORD_BYTES
from penstock.testing import MemoryPenstock
from penstock_core.limits import MIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression, stamp, validate

TOPIC = "null"
_BATCH_RECORDS = 5_000
_BODY_BYTES_MAX = 8 * MIB


class NullService:
    """The handlers."""

    def __init__(self, memory: MemoryPenstock, records: int) -> None:
        self._memory = memory
        self._records = records
        self._next_offsets: dict[int, int] = {}
        values = [NewRecord(1, None, os.urandom(RECORD_BYTES)) for _ in range(_BATCH_RECORDS)]
        self._batch = encode(values, Compression.NONE)

    async def produce(self, request: web.Request) -> web.Response:
        """Take each batch by its header."""
        header, body = frame.decode(await request.read())
        results, at = [], 0
        entries = header["batches"]
        assert isinstance(entries, list)
        for entry in entries:
            count = validate(body[at : at + entry["length"]]).record_count
            offset = self._next_offsets.get(entry["partition"], 0)
            self._next_offsets[entry["partition"]] = offset + count
            at += entry["length"]
            results.append({"topic": TOPIC, "partition": entry["partition"], "base_offset": offset})
        return web.json_response({"results": results})

    async def fetch(self, request: web.Request) -> web.Response:
        """Repeat the batch."""
        wanted = json.loads(await request.read())
        partitions, bodies, left = [], [], wanted["max_bytes"]
        for entry in wanted["partitions"]:
            offset, taken = entry["offset"], 0
            while offset < self._records and len(self._batch) * (taken + 1) <= min(left, entry["max_bytes"]):
                batch = bytearray(self._batch)
                offset = stamp(batch, offset)
                bodies.append(batch)
                taken += 1
            left -= taken * len(self._batch)
            partitions.append(
                {
                    "topic": TOPIC,
                    "partition": entry["partition"],
                    "length": taken * len(self._batch),
                    "next_offset": offset,
                    "high_watermark": self._records,
                    "log_start_offset": 0,
                }
            )
        if not bodies:
            await asyncio.sleep(wanted["wait_ms"] / 1_000)
        data = frame.encode({"partitions": partitions}, bodies)
        return web.Response(body=data, content_type=frame.FRAME_CONTENT_TYPE)

    async def other(self, request: web.Request) -> web.Response:
        """As the service in memory."""
        answer = await asyncio.to_thread(
            self._memory.transport.call,
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            await request.read(),
        )
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def app_of(memory: MemoryPenstock, records: int) -> web.Application:
    """The application. `memory` has the topic."""
    service = NullService(memory, records)
    app = web.Application(client_max_size=_BODY_BYTES_MAX)
    app.router.add_post("/v1/produce", service.produce)
    app.router.add_post("/v1/fetch", service.fetch)
    app.router.add_route("*", "/{path:.*}", service.other)
    return app


async def serve(partitions: int, records: int) -> None:
    """Serve until the process ends."""
    with MemoryPenstock() as memory:
        memory.create_topic(TOPIC, partitions=partitions)
        runner = web.AppRunner(app_of(memory, records), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
