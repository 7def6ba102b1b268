"""Subscriptions through Admin and AsyncAdmin, against the service in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import ConflictError, InvalidError, NotFoundError, SubscriptionLanes, UnknownTopicError
from penstock.testing import MemoryPenstock
from tests.core.push.push_samples import SECRET

Call = Callable[..., Any]
FUNCTION = {"lambda": "arn:aws:lambda:eu-west-1:123456789012:function:pack"}
ENDPOINT = {"https": {"url": "https://example.com/hook", "secret": SECRET}}


@pytest.fixture(params=["Admin", "AsyncAdmin"])
def call(request: pytest.FixtureRequest, service: MemoryPenstock) -> Call:
    """Calls a method of the admin client by its name."""
    for topic in ("orders", "orders.dead"):
        service.create_topic(topic, partitions=2)
    if request.param == "Admin":
        return lambda method, *args: getattr(service.admin(), method)(*args)

    def call_async(method: str, *args: Any) -> Any:
        async def run() -> Any:
            async with service.async_admin() as admin:
                return await getattr(admin, method)(*args)

        return asyncio.run(run())

    return call_async


def test_subscription_is_made_altered_and_listed(call: Call) -> None:
    made = call("put_subscription", "packing", "orders", ENDPOINT, {"batch_records": 7})
    assert (made.name, made.state, made.topics) == ("packing", "active", ("orders",))
    assert (made.target, made.config["batch_records"]) == ({"https": {"url": "https://example.com/hook"}}, 7)
    altered = call("put_subscription", "packing", None, FUNCTION, {"retry": {"backoff_ms_min": 5}})
    assert (altered.target, altered.config["batch_records"]) == (FUNCTION, 7)
    assert altered.config["retry"]["backoff_ms_min"] == 5
    assert altered.subscription_id == made.subscription_id
    assert call("list_subscriptions") == [altered]


def test_description_tells_lag_and_age(call: Call, service: MemoryPenstock) -> None:
    made = call("put_subscription", "packing", ["orders"], FUNCTION, {"start": "earliest"})
    assert call("pause_subscription", "packing").state == "paused"
    with service.producer() as producer:
        producer.send("orders", b"1", partition=1)
    found = call("describe_subscription", "packing")
    assert found.subscription.subscription_id == made.subscription_id
    assert found.lanes == SubscriptionLanes(working=0, resting=0, deaths=0)
    assert [(each.topic, each.partition, each.lag) for each in found.partitions] == [("orders", 0, 0), ("orders", 1, 1)]
    assert found.lag == 1
    assert found.oldest_age_ms == found.partitions[1].oldest_age_ms is not None
    assert call("resume_subscription", "packing").state == "active"


def test_deleted_subscription_is_unknown(call: Call) -> None:
    call("put_subscription", "packing", "orders", FUNCTION)
    call("delete_subscription", "packing")
    for method in ("describe_subscription", "pause_subscription", "resume_subscription", "delete_subscription"):
        with pytest.raises(NotFoundError):
            call(method, "packing")
    assert call("list_subscriptions") == []


def test_bad_input_is_refused(call: Call) -> None:
    for name, topics, target, config in (
        ("a b", "orders", FUNCTION, None),
        ("packing", [], FUNCTION, None),
        ("packing", "orders", {"ftp": "x"}, None),
        ("packing", "orders", "arn", None),
        ("packing", "orders", FUNCTION, {"batch_size": 7}),
        ("packing", "orders", FUNCTION, {"retry": {"attempts_max": 7}}),
        ("packing", None, FUNCTION, None),
    ):
        with pytest.raises(InvalidError):
            call("put_subscription", name, topics, target, config)
    with pytest.raises(UnknownTopicError):
        call("put_subscription", "packing", "nowhere", FUNCTION)


def test_too_many_subscriptions_are_a_conflict(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_service.push.admin.put_subscription.PUSH_SUBSCRIPTIONS_MAX", 0)
    with pytest.raises(ConflictError, match="TOO_MANY_SUBSCRIPTIONS"):
        call("put_subscription", "packing", "orders", FUNCTION)
