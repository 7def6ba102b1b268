"""Clients that wait for the records of one group."""

import asyncio
from collections.abc import Mapping

from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from tests.kafka.groups.desk import run
from tests.kafka.share.desk import ACCEPT, ShareDesk, member_of, send


class _Counting:
    """A transport that counts the acquires on their way, and remembers the most."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.acquires = 0
        self.now = 0
        self.most = 0

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if not path.endswith("/acquire"):
            return self._inner.call(method, path, query, headers, body)
        self.acquires += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return self._inner.call(method, path, query, headers, body)
        finally:
            self.now -= 1

    def close(self) -> None:
        """As the inner one."""
        self._inner.close()


def test_one_client_asks_while_the_group_is_quiet_and_a_record_ends_its_wait(service: MemoryPenstock) -> None:
    transport = _Counting(service.transport)

    async def work() -> None:
        desk = ShareDesk(service, transport)
        members = [member_of(desk, service, f"m{number}") for number in range(5)]
        for each in members:
            await each.join()
            await each.fetch()
        transport.most = 0
        waiting = [asyncio.ensure_future(each.fetch(max_wait=500)) for each in members]
        while not transport.acquires or not transport.now:
            await asyncio.sleep(0)
        await asyncio.to_thread(send, service, "a")
        found = [record for records in await asyncio.gather(*waiting) for record in records]
        assert [each.value for each in found] == ["a"]
        assert transport.most == 1
        await desk.close()

    run(work())


def test_acknowledgements_of_a_client_that_waits_go_at_once(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        desk = ShareDesk(service)
        member = member_of(desk, service)
        await member.join()
        assert len(await member.fetch()) == 1
        await member.fetch()
        waiting = asyncio.ensure_future(member.fetch({0: [(0, 0, [ACCEPT])]}, max_wait=60_000))
        admin = service.admin()
        while (await asyncio.to_thread(admin.describe_share_group, "workers")).partitions[0].lag:
            assert not waiting.done()
        desk.client_goes()
        assert await waiting == []
        await desk.close()

    run(work())
