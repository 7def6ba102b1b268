from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicName
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import BusTarget, QueueTarget, Target, TopicTarget
from penstock_core.storage.item import item_bytes
from penstock_core.storage.push.subscription_item import (
    parse_subscription,
    subscription_delete,
    subscription_item,
    subscription_put,
    subscription_update,
)
from tests.core.push.push_samples import FULL, PLAIN, SECRET
from tests.support.tables import check_update

TARGETS: list[Target] = [
    QueueTarget(url="https://sqs.eu-west-1.amazonaws.com/123456789012/pack"),
    BusTarget(arn="arn:aws:events:eu-west-1:123456789012:event-bus/orders"),
    TopicTarget(topic=TopicName("copies")),
]


@pytest.mark.parametrize("subscription", [PLAIN, FULL, *(replace(FULL, target=target) for target in TARGETS)])
def test_subscription_is_read_back(subscription: Subscription) -> None:
    assert parse_subscription(subscription_item(subscription)) == subscription


def test_subscription_stores_no_setting_that_is_the_default() -> None:
    assert subscription_item(PLAIN)["config"] == {"S": "{}"}


def test_subscription_item_is_what_is_stored_today() -> None:
    assert subscription_item(FULL) == {
        "pk": {"S": "#subscriptions"},
        "sk": {"S": "packing"},
        "subscription_id": {"S": "ab" * 10},
        "version": {"N": "3"},
        "created_at_ms": {"N": "7"},
        "is_paused": {"BOOL": True},
        "topics": {"M": {"orders": {"S": "00ff"}, "bills": {"S": "11ff"}}},
        "target": {"S": '{"https":{"url":"https://example.com/hook"}}'},
        "secret": {"S": SECRET},
        "config": {
            "S": '{"age_ms_max":40,"attempts_max":9,"backoff_ms_max":20,"backoff_ms_min":10,"batch_records":7,'
            '"batch_window_ms":500,"bisect":false,"concurrency":20,"dead_letter_topic":"orders.dead",'
            '"filter":{"type":["order"]},"mode":"parallel","patience_ms":30,"start":"earliest"}'
        },
    }
    assert item_bytes(subscription_item(FULL)) < 1_024


def test_item_without_an_endpoint_has_no_secret() -> None:
    assert "secret" not in subscription_item(PLAIN)


def test_change_of_the_target_removes_the_secret() -> None:
    update = subscription_update(FULL, replace(PLAIN, version=4))
    check_update(update)
    assert update.update.endswith(" REMOVE #new_secret")
    assert update.names["#new_secret"] == "secret"
    assert SECRET not in str(update)


def test_change_and_deletion_expect_what_was_seen() -> None:
    seen = {":seen_id": {"S": "ab" * 10}, ":seen_version": {"N": "3"}}
    update, delete = subscription_update(FULL, replace(FULL, version=4)), subscription_delete(FULL)
    assert update.condition == delete["ConditionExpression"] == "subscription_id = :seen_id AND version = :seen_version"
    assert delete["ExpressionAttributeValues"] == seen
    assert update.values.items() >= seen.items()
    assert subscription_put(FULL).condition == "attribute_not_exists(pk)"


def test_stored_target_is_not_checked_anew() -> None:
    """A check that became stricter must not take a subscription out of the list."""
    refused_now = replace(PLAIN, target=QueueTarget(url="ftp://somewhere"))
    assert parse_subscription(subscription_item(refused_now)) == refused_now


def test_target_of_a_later_release_is_refused() -> None:
    item = subscription_item(PLAIN) | {"target": {"S": '{"pigeon":"coo"}'}}
    with pytest.raises(PenstockError, match=r"packing has a target .*'pigeon'") as caught:
        parse_subscription(item)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


def test_secret_is_in_no_repr_of_what_was_read() -> None:
    assert SECRET not in repr(parse_subscription(subscription_item(FULL)))
