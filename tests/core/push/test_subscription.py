from typing import Any

import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.push.subscription import (
    SUBSCRIPTION_BOUNDS,
    SUBSCRIPTION_ID_BYTES,
    SubscriptionConfig,
    alter_subscription_config,
    check_subscription_topics,
    new_subscription_config,
    new_subscription_id,
    subscription_config_to_json,
)
from penstock_core.push.targets.target import FunctionTarget, Target, TopicTarget

DEAD = {"dead_letter_topic": "orders.dead"}
FUNCTION = FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack")
ORDERS = {TopicName("orders"): TopicId("0a")}


def refusal(settings: dict[str, Any]) -> str:
    with pytest.raises(PenstockError) as caught:
        new_subscription_config(settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_settings_have_defaults() -> None:
    assert new_subscription_config({"mode": None}) == SubscriptionConfig()
    assert subscription_config_to_json(SubscriptionConfig())["attempts_max"] is None


def test_dead_letter_topic_brings_a_bound_of_attempts() -> None:
    assert new_subscription_config(DEAD).attempts_max == limits.PUSH_ATTEMPTS_DEFAULT
    assert new_subscription_config({**DEAD, "attempts_max": 2}).attempts_max == 2


@pytest.mark.parametrize("name", SUBSCRIPTION_BOUNDS)
def test_number_out_of_bounds_is_refused(name: str) -> None:
    low, high = SUBSCRIPTION_BOUNDS[name]
    for value in (low - 1, high + 1, "7", True, 1.5):
        message = refusal({**DEAD, name: value})
        assert name in message
        assert f"from {low} to {high}" in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"colour": 1}, "unknown setting 'colour': known are age_ms_max"),
        ({"mode": "fast"}, "mode='fast': must be one of ordered, parallel"),
        ({"start": 7}, "start=7: must be one of earliest, latest"),
        ({"bisect": 1}, "bisect=1: must be true or false"),
        ({"filter": []}, "filter=[]: must be a filter policy"),
        ({"dead_letter_topic": 7}, "dead_letter_topic=7: must be the name of a topic"),
        ({"backoff_ms_min": 10, "backoff_ms_max": 9}, "the first pause is at most the longest"),
        ({"attempts_max": 3}, "attempts_max=3 without dead_letter_topic"),
        ({"age_ms_max": 3}, "age_ms_max=3 without dead_letter_topic"),
    ],
)
def test_bad_setting_is_refused_with_the_way_out(settings: dict[str, Any], told: str) -> None:
    assert told in refusal(settings)


@pytest.mark.parametrize(
    ("topics", "target", "told"),
    [
        ({}, FUNCTION, "a subscription of 0 topics"),
        ({TopicName(f"t{n}"): TopicId(f"{n}") for n in range(101)}, FUNCTION, "a subscription of 101 topics"),
        ({TopicName("orders.dead"): TopicId("0b")}, FUNCTION, "dead_letter_topic='orders.dead'"),
        (ORDERS, TopicTarget(topic=TopicName("orders")), "target.topic='orders'"),
    ],
)
def test_topics_that_cannot_be_read_are_refused(topics: dict[TopicName, TopicId], target: Target, told: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check_subscription_topics(topics, target, new_subscription_config(DEAD))
    assert told in caught.value.message


def test_topics_that_can_be_read_are_taken() -> None:
    check_subscription_topics(ORDERS, TopicTarget(topic=TopicName("mirror")), new_subscription_config(DEAD))


def test_id_is_hexadecimal() -> None:
    assert new_subscription_id(bytes(range(SUBSCRIPTION_ID_BYTES))) == "00010203040506070809"
    with pytest.raises(ValueError, match="10 random bytes"):
        new_subscription_id(b"")


def test_alteration_keeps_what_it_does_not_name_and_null_is_the_default() -> None:
    old = new_subscription_config({**DEAD, "batch_records": 7, "concurrency": 3, "attempts_max": 2})
    new = alter_subscription_config(old, {"batch_records": None, "backoff_ms_min": 10})
    assert (new.batch_records, new.concurrency, new.attempts_max, new.backoff_ms_min) == (100, 3, 2, 10)


def test_bounds_of_attempts_and_age_end_with_the_dead_letter_topic() -> None:
    old = new_subscription_config({**DEAD, "attempts_max": 2, "age_ms_max": 9})
    new = alter_subscription_config(old, {"dead_letter_topic": None})
    assert (new.dead_letter_topic, new.attempts_max, new.age_ms_max) == (None, None, None)
    assert alter_subscription_config(new, DEAD).attempts_max == limits.PUSH_ATTEMPTS_DEFAULT
    with pytest.raises(PenstockError, match="attempts_max=3 without dead_letter_topic"):
        alter_subscription_config(old, {"dead_letter_topic": None, "attempts_max": 3})


@pytest.mark.parametrize("changes", [{"mode": "parallel"}, {"start": "earliest"}])
def test_mode_and_start_are_fixed(changes: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="for ever"):
        alter_subscription_config(SubscriptionConfig(), changes)
    same = {"mode": None, "start": "latest"}
    assert alter_subscription_config(SubscriptionConfig(), same) == SubscriptionConfig()


def test_parallel_subscription_waits_for_no_full_batch() -> None:
    config = new_subscription_config({"mode": "parallel", "batch_window_ms": 3})
    with pytest.raises(PenstockError, match="batch_window_ms=3 with mode=parallel"):
        check_subscription_topics(ORDERS, FUNCTION, config)


def test_copy_to_a_topic_is_never_parallel() -> None:
    config = new_subscription_config({"mode": "parallel"})
    with pytest.raises(PenstockError, match="a copy to a topic is ordered"):
        check_subscription_topics(ORDERS, TopicTarget(topic=TopicName("mirror")), config)
