"""`penstock quotas`: set, list, delete; and a producer that slows down instead of failing."""

import pytest

from penstock.testing import MemoryPenstock
from penstock_handlers.router import LOCAL_PRINCIPAL
from tests.sdk.cli.command import run, run_json


def test_quota_is_set_listed_and_deleted(service: MemoryPenstock) -> None:
    made = run_json(service.transport, "quotas", "set", "principal", "*", "--produce-bytes", "5000000")
    assert made == {"subject": "principal", "name": "*", "limits": {"produce_bytes_per_s": 5_000_000}}
    assert run_json(service.transport, "quotas", "list") == [made]
    shown = run(service.transport, "quotas", "list")
    assert (shown.exit_code, "5,000,000" in shown.output) == (0, True)
    assert run(service.transport, "quotas", "delete", "principal", "*").output == "deleted the quota of principal *\n"
    assert run_json(service.transport, "quotas", "list") == []


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("set", "topic", "orders"), 2, "give at least one limit"),
        (("set", "group", "g", "--fetch-bytes", "1"), 2, "'principal', 'topic'"),
        (("set", "topic", "orders", "--fetch-bytes", "0"), 1, "fetch_bytes_per_s=0"),
        (("set", "topic", "a/b", "--fetch-bytes", "1"), 1, "a/b"),
        (("delete", "topic", "orders"), 1, "has no quota of its own"),
    ],
)
def test_mistake_names_the_value_and_the_way_out(
    service: MemoryPenstock, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    refused = run(service.transport, "quotas", *arguments)
    assert (refused.exit_code, message in refused.output + refused.stderr) == (exit_code, True)


def test_producer_over_its_quota_slows_down_and_loses_nothing(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=1)
    service.admin().set_quota("principal", LOCAL_PRINCIPAL, {"produce_requests_per_s": 20})
    with service.producer(linger_ms=0) as producer:
        for number in range(30):
            producer.send("orders", str(number).encode()).result(timeout=60)
    assert [record.value for record in service.records("orders")] == [str(number).encode() for number in range(30)]
