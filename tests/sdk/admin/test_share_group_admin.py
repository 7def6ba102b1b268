"""Share groups through Admin and AsyncAdmin, against the service in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import InvalidError, NotFoundError, UnknownTopicError
from penstock.testing import MemoryPenstock

Call = Callable[..., Any]


@pytest.fixture(params=["Admin", "AsyncAdmin"])
def call(request: pytest.FixtureRequest, service: MemoryPenstock) -> Call:
    """Calls a method of the admin client by its name."""
    for topic in ("orders", "returns", "orders.dead"):
        service.create_topic(topic, partitions=2)
    if request.param == "Admin":
        return lambda method, *args, **named: getattr(service.admin(), method)(*args, **named)

    def call_async(method: str, *args: Any, **named: Any) -> Any:
        async def run() -> Any:
            async with service.async_admin() as admin:
                return await getattr(admin, method)(*args, **named)

        return asyncio.run(run())

    return call_async


def test_group_that_exists_stays_as_it_is_when_asked(call: Call) -> None:
    made = call("create_share_group", "workers", "orders", exist_ok=True)
    assert call("create_share_group", "workers", "returns", {"lock_ms": 60_000}, exist_ok=True) == made
    assert call("create_share_group", "workers", "returns").topics == ("returns",)


def test_group_is_made_listed_and_described(call: Call, service: MemoryPenstock) -> None:
    made = call("create_share_group", "workers", ["orders", "returns"], {"dead_letter_topic": "orders.dead"})
    assert (made.group, made.topics) == ("workers", ("orders", "returns"))
    assert (made.config["deliveries_max"], made.config["lock_ms"]) == (5, 30_000)
    assert call("list_share_groups") == [made]
    with service.producer() as producer:
        producer.send("returns", b"1", partition=1)
    found = call("describe_share_group", "workers")
    assert found.group == made
    assert [(each.topic, each.partition, each.available, each.lag) for each in found.partitions] == [
        ("orders", 0, 0, 0),
        ("orders", 1, 0, 0),
        ("returns", 0, 0, 0),
        ("returns", 1, 1, 1),
    ]
    assert [each.oldest_age_ms is None for each in found.partitions] == [True, True, True, False]


def test_listed_topics_keep_their_order_and_tell_how_long_they_wait(call: Call, service: MemoryPenstock) -> None:
    made = call("create_share_group", "workers", ["returns", "orders"], {"topic_order": "listed"})
    assert made.topics == ("returns", "orders")
    with service.producer() as producer:
        producer.send("orders", b"1", partition=1)
    found = call("describe_share_group", "workers")
    assert [each.topic for each in found.partitions] == ["returns"] * 2 + ["orders"] * 2
    assert [*found.waiting_age_ms] == ["returns", "orders"]
    assert found.waiting_age_ms["returns"] is None
    assert found.waiting_age_ms["orders"] == found.partitions[3].waiting_age_ms
    assert found.partitions[3].waiting_age_ms is not None
    assert call("alter_share_group", "workers", {}, ["orders", "returns"]).topics == ("orders", "returns")
    with pytest.raises(InvalidError, match="must be one of any, listed"):
        call("alter_share_group", "workers", {"topic_order": 7})


def test_fair_sharing_is_set_and_taken_back(call: Call, service: MemoryPenstock) -> None:
    made = call("create_share_group", "workers", "orders", {"sharing": "fair", "fair_by": "tenant"})
    assert (made.config["sharing"], made.config["fair_by"]) == ("fair", "tenant")
    [found, *_] = call("describe_share_group", "workers").partitions
    assert (found.passed_over, found.passed_over_offset) == (0, None)
    altered = call("alter_share_group", "workers", {"sharing": None})
    assert (altered.config["sharing"], altered.config["fair_by"]) == ("any", "key")
    with pytest.raises(InvalidError, match="take one of the two"):
        call("create_share_group", "others", "orders", {"sharing": "fair", "ordering": "key"})


def test_holders_of_locks_are_told_by_the_ends_of_their_names(call: Call, service: MemoryPenstock) -> None:
    call("create_share_group", "workers", "orders")
    with service.producer() as producer:
        for number in range(4):
            producer.send("orders", b"%d" % number, partition=number % 2)
    settings = {"group_id": "workers", "client_id": "packing/worker-1", "acknowledge": "explicit"}
    with service.share_consumer("orders", **settings) as consumer:
        while len(consumer.poll(timeout_ms=100)):
            pass
        found = call("describe_share_group", "workers")
        assert [(each.consumer, each.records) for each in found.holders] == [("ing-worker-1", 4)]
        assert [[holder.records for holder in each.holders] for each in found.partitions] == [[2], [2]]
    assert call("describe_share_group", "workers").holders == ()


def test_settings_and_topics_are_altered(call: Call) -> None:
    call("create_share_group", "workers", "orders", {"lock_ms": 60_000})
    assert call("alter_share_group", "workers", {"in_flight_max": 7}).config["lock_ms"] == 60_000
    altered = call("alter_share_group", "workers", {"lock_ms": None}, topics=["returns"])
    assert (altered.config["lock_ms"], altered.config["in_flight_max"], altered.topics) == (30_000, 7, ("returns",))


def test_reset_goes_back_in_the_partitions_that_are_named(call: Call, service: MemoryPenstock) -> None:
    call("create_share_group", "workers", "orders")
    with service.producer() as producer:
        for number in range(4):
            producer.send("orders", b"%d" % number, partition=number % 2)
    with service.share_consumer("orders", group_id="workers", consumer_timeout_ms=0) as consumer:
        while consumer.poll(timeout_ms=100):
            pass
    planned = call("reset_share_group", "workers", "orders", offset=1, partitions=[1], dry_run=True)
    assert [each.lag for each in call("describe_share_group", "workers").partitions] == [0, 0]
    done = call("reset_share_group", "workers", "orders", offset=1, partitions=[1])
    assert planned == done
    assert {number: (each.old_offset, each.new_offset) for number, each in done.items()} == {1: (2, 1)}
    assert [each.lag for each in call("describe_share_group", "workers").partitions] == [0, 1]


def test_deleted_group_is_unknown(call: Call) -> None:
    call("create_share_group", "workers", "orders")
    call("delete_share_group", "workers")
    for method, more in (("describe_share_group", ()), ("delete_share_group", ()), ("alter_share_group", ({},))):
        with pytest.raises(NotFoundError):
            call(method, "workers", *more)
    assert call("list_share_groups") == []


def test_bad_input_is_refused(call: Call) -> None:
    with pytest.raises(UnknownTopicError):
        call("create_share_group", "workers", "nowhere")
    with pytest.raises(InvalidError):
        call("create_share_group", "workers", "orders", {"deliveries_max": 5})
    with pytest.raises(InvalidError):
        call("create_share_group", "workers", [])
    with pytest.raises(InvalidError):
        call("reset_share_group", "workers", "orders", to="earliest", offset=1)
    with pytest.raises(InvalidError):
        call("reset_share_group", "workers", "orders", to="yesterday")
