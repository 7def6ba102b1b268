from dataclasses import fields
from typing import Any

import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.share.share_group import (
    SHARE_BOUNDS,
    SHARE_GROUP_ID_BYTES,
    ShareGroupConfig,
    alter_share_group_config,
    check_share_topics,
    hidden_name,
    new_share_group_config,
    new_share_group_id,
    share_group_config_to_json,
)

DEAD = {"dead_letter_topic": "orders.dead"}


def code_and_message(error: PenstockError) -> str:
    assert error.code is ErrorCode.INVALID_CONFIG
    return error.message


def refusal(settings: dict[str, Any]) -> str:
    with pytest.raises(PenstockError) as caught:
        new_share_group_config(settings)
    return code_and_message(caught.value)


def test_defaults_are_those_of_the_reference() -> None:
    assert new_share_group_config({}) == ShareGroupConfig()
    assert share_group_config_to_json(ShareGroupConfig())["deliveries_max"] is None


def test_dead_letter_topic_brings_a_bound_of_deliveries() -> None:
    assert new_share_group_config(DEAD).deliveries_max == limits.SHARE_DELIVERIES_DEFAULT
    assert new_share_group_config({**DEAD, "deliveries_max": 7}).deliveries_max == 7


def test_order_by_key_has_a_smaller_bound_in_flight() -> None:
    assert new_share_group_config({"ordering": "key"}).in_flight_max == limits.SHARE_KEY_IN_FLIGHT_MAX
    assert "500 at most" in refusal({"ordering": "key", "in_flight_max": 501})


@pytest.mark.parametrize("name", SHARE_BOUNDS)
def test_number_out_of_bounds_is_refused(name: str) -> None:
    low, high = SHARE_BOUNDS[name]
    for value in (low - 1, high + 1, "7", True, 1.5):
        message = refusal({**DEAD, "ordering": "key", name: value})
        assert name in message
        assert f"from {low} to {high}" in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"colour": 1}, "unknown setting 'colour'"),
        ({"ordering": "value"}, "must be one of none, key"),
        ({"start": "middle"}, "must be one of earliest, latest"),
        ({"dead_letter_topic": 7}, "must be the name of a topic"),
        ({"filter": ["a"]}, "must be a filter policy"),
        ({"deliveries_max": 5}, "without dead_letter_topic"),
        ({"key_batch_max": 2}, "it is for ordering=key"),
        ({"topic_order": "first"}, "must be one of any, listed"),
        ({"topic_order": ["a"]}, "must be one of any, listed"),
        ({"retry_backoff_ms_min": 2_000, "retry_backoff_ms_max": 1_000}, "the first pause is at most the longest"),
    ],
)
def test_wrong_setting_is_refused_with_the_way_out(settings: dict[str, Any], told: str) -> None:
    assert told in refusal(settings)


def test_dead_letter_topic_has_the_name_of_a_topic() -> None:
    with pytest.raises(PenstockError) as caught:
        new_share_group_config({"dead_letter_topic": "no topic"})
    assert caught.value.code is ErrorCode.INVALID_NAME


def test_altering_keeps_what_is_not_named() -> None:
    config = new_share_group_config({**DEAD, "lock_ms": 5_000, "deliveries_max": 9})
    altered = alter_share_group_config(config, {"lock_ms": None, "in_flight_max": 3})
    assert (altered.lock_ms, altered.in_flight_max, altered.deliveries_max) == (30_000, 3, 9)
    assert alter_share_group_config(config, {}) == config


def test_altering_the_dead_letter_topic_takes_its_bound_along() -> None:
    config = new_share_group_config({})
    bounded = alter_share_group_config(config, DEAD)
    assert bounded.deliveries_max == limits.SHARE_DELIVERIES_DEFAULT
    assert alter_share_group_config(bounded, {"dead_letter_topic": "other"}).deliveries_max == 5
    assert alter_share_group_config(bounded, {"dead_letter_topic": None}) == config


def test_a_group_that_ends_to_share_forgets_what_tells_its_tenants() -> None:
    config = new_share_group_config({"sharing": "fair", "fair_by": "tenant"})
    assert alter_share_group_config(config, {"sharing": "any"}) == new_share_group_config({})
    assert alter_share_group_config(config, {"fair_by": None}).fair_by == "key"


@pytest.mark.parametrize(("name", "value"), [("ordering", "key"), ("start", "latest")])
def test_altering_does_not_change_what_is_fixed(name: str, value: str) -> None:
    config = new_share_group_config({})
    assert alter_share_group_config(config, {name: getattr(config, name)}) == config
    assert alter_share_group_config(config, {name: None}) == config
    with pytest.raises(PenstockError) as caught:
        alter_share_group_config(config, {name: value})
    assert f"keeps its {name}" in code_and_message(caught.value)


def test_every_setting_survives_as_json() -> None:
    config = new_share_group_config({**DEAD, "ordering": "key", "filter": {"type": ["order"]}, "key_batch_max": 3})
    shown = share_group_config_to_json(config)
    assert shown.keys() == {setting.name for setting in fields(ShareGroupConfig)}
    assert new_share_group_config(shown) == config


def test_topics_are_bounded_and_have_no_dead_letter_topic_among_them() -> None:
    one = {TopicName("orders"): TopicId("t")}
    check_share_topics(one, new_share_group_config(DEAD))
    many = {TopicName(f"t{number}"): TopicId("t") for number in range(limits.SHARE_TOPICS_MAX + 1)}
    wrong = [({}, {}), (many, {}), (one, {"dead_letter_topic": "orders"})]
    for topics, settings in wrong:
        with pytest.raises(PenstockError) as caught:
            check_share_topics(topics, new_share_group_config(settings))
        assert code_and_message(caught.value)


def test_id_is_hexadecimal() -> None:
    assert new_share_group_id(bytes(range(SHARE_GROUP_ID_BYTES))) == "00010203040506070809"
    with pytest.raises(ValueError, match="10 random bytes"):
        new_share_group_id(b"short")


def test_hidden_names_are_no_names_of_users() -> None:
    assert hidden_name("redrive") == "#redrive"
