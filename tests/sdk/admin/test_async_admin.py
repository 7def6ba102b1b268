"""AsyncAdmin has every call of Admin, with the same arguments, and each does the same."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock import Admin, AsyncAdmin, TopicPartition
from penstock.errors import TopicExistsError, UnknownTopicError
from penstock.testing import MemoryPenstock

CALLS = [name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")]
CHANGES: list[Callable[[Any], Any]] = [
    lambda admin: admin.create_topic("bills", partitions=2),
    lambda admin: admin.alter_topic("bills", {"max_batch_bytes": 9_999}),
    lambda admin: admin.add_partitions("bills", 3),
    lambda admin: admin.set_partitions("bills", 2),
    lambda admin: admin.truncate("orders", {0: 2}),
    lambda admin: admin.commit_group_offsets("g", {TopicPartition("orders", 0): 3}, metadata="m"),
    lambda admin: admin.alter_group("g", {"assignor": "range"}),
    lambda admin: admin.reset_group_offsets("g", "orders", to="latest"),
    lambda admin: admin.take_zone_out("zone-a", "for a test"),
    lambda admin: admin.let_zone_in("zone-a"),
]
LOOKS: list[Callable[[Any], Any]] = [
    lambda admin: admin.list_topics(),
    lambda admin: admin.describe_topic("orders"),
    lambda admin: admin.list_offsets("orders"),
    lambda admin: admin.offsets_for_times({TopicPartition("orders", 0): 1_003}),
    lambda admin: admin.group_offsets("g"),
    lambda admin: admin.list_groups(),
    lambda admin: admin.describe_group("g"),
    lambda admin: admin.list_zones(),
    lambda admin: admin.partitions(["orders", "bills"]),
]


def _run(service: MemoryPenstock, call: Callable[[AsyncAdmin], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with service.async_admin() as admin:
            return await call(admin)

    return asyncio.run(run())


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(5):
            producer.send("orders", b"v", partition=0, timestamp_ms=1_000 + number)
    return "orders"


@pytest.mark.parametrize("name", CALLS)
def test_signatures_are_those_of_admin(name: str) -> None:
    assert inspect.signature(getattr(AsyncAdmin, name)) == inspect.signature(getattr(Admin, name))
    assert inspect.iscoroutinefunction(getattr(AsyncAdmin, name))


def test_async_calls_have_the_results_of_admin(service: MemoryPenstock, orders: str) -> None:
    zone = service.admin().list_zones()[0].zone
    for change in CHANGES:
        _run(service, lambda admin, change=change: change(_Zoned(admin, zone)))  # type: ignore[misc]
        for look in LOOKS[:4]:
            assert _run(service, look) == look(service.admin())
    for look in LOOKS:
        assert _run(service, look) == look(service.admin())
    assert [each.offset for each in service.admin().group_offsets("g")] == [5, 0]
    assert _run(service, lambda admin: admin.delete_group_offsets("g", "orders", [0])) == {0: 5}
    _run(service, lambda admin: admin.delete_group("g"))
    _run(service, lambda admin: admin.delete_topic("bills"))
    assert [topic.name for topic in service.admin().list_topics()] == ["orders"]


class _Zoned:
    """An admin whose first zone, whatever its name, is called zone-a."""

    def __init__(self, admin: AsyncAdmin, zone: str) -> None:
        self._admin = admin
        self._zone = zone

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._admin, name)
        return lambda *args, **kwargs: method(*(self._zone if each == "zone-a" else each for each in args), **kwargs)


def test_errors_are_those_of_admin(service: MemoryPenstock, orders: str) -> None:
    with pytest.raises(TopicExistsError):
        _run(service, lambda admin: admin.create_topic(orders))
    with pytest.raises(UnknownTopicError):
        _run(service, lambda admin: admin.describe_topic("none"))
