"""Commands that wait for records, and are woken by a fake AppSync Events over real sockets."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import Producer
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run
from tests.support.deadlines import DEADLINE_S, until
from tests.support.waking_transport import WakingTransport


@pytest.mark.parametrize("group", [(), ("--group", "g")], ids=["plain", "member"])
def test_consume_arms_the_partitions_and_is_woken(
    service: MemoryPenstock, transport: WakingTransport, group: tuple[str, ...]
) -> None:
    service.create_topic("orders", partitions=3)
    with ThreadPoolExecutor(1) as pool:
        consuming = pool.submit(run, transport, "consume", "orders", "--max-records", "1", *group)
        until(lambda: transport.armed() == 3)
        _send(transport)
        result = consuming.result(DEADLINE_S)
    assert (result.exit_code, result.stdout) == (0, "1\n"), result.output


def test_work_arms_the_partitions_and_is_woken(service: MemoryPenstock, transport: WakingTransport) -> None:
    service.create_topic("orders", partitions=2)
    assert run(transport, "share-groups", "create", "workers", "orders").exit_code == 0
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(run, transport, "work", "workers", "--idle", "2s", "--", "true")
        until(lambda: transport.armed() == 2)
        _send(transport)
        result = working.result(DEADLINE_S)
    assert result.exit_code == 0, result.output
    assert "1 accepted" in result.output


def _send(transport: WakingTransport) -> None:
    with Producer(transport=transport) as producer:
        producer.send("orders", b"1")
