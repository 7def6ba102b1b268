from dataclasses import asdict
from typing import Any

import pytest

from penstock.apply.settings import losses, unit_text, whole, whole_number, with_unit
from penstock.apply.stage import Noun, Settings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.topic import TopicConfig

KNOWN = {**asdict(TopicConfig(retention_ms=60_000)), "partitions": 3}


def test_whole_takes_what_is_given_then_what_is_known_then_defaults() -> None:
    assert whole(Noun.TOPIC, {"index_tags": True}, KNOWN) == {
        **asdict(TopicConfig(retention_ms=60_000, index_tags=True)),
    }
    assert whole(Noun.TOPIC, {"partitions": 4}, None) == {**asdict(TopicConfig()), "partitions": 4}
    assert whole(Noun.TOPIC, {"retention_ms": None}, KNOWN) == asdict(TopicConfig())


def test_whole_leaves_out_what_the_service_does_not_tell_and_what_only_it_knows() -> None:
    older = {name: value for name, value in KNOWN.items() if name != "index_tags"}
    assert whole(Noun.TOPIC, {}, {**older, "newer": 1}).keys() == older.keys() - {"partitions"}
    assert whole(Noun.TOPIC, {"index_tags": False}, older)["index_tags"] is False


@pytest.mark.parametrize(
    ("noun", "given", "known"),
    [
        (Noun.TOPIC, {"cleanup_policy": "compact"}, {"ordering_on_change": "wait"}),
        (Noun.TOPIC, {"cleanup_policy": "compact", "ordering_on_change": "wait"}, None),
        (Noun.GROUP, {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 6_000}, None),
        (Noun.SHARE_GROUP, {"deliveries_max": 3}, None),
        (Noun.SUBSCRIPTION, {"age_ms_max": 60_000}, None),
        (Noun.SHARE_GROUP, {"ordering": "key"}, {"ordering": "none"}),
        (Noun.SUBSCRIPTION, {"mode": "ordered"}, {"mode": "parallel"}),
        (Noun.GROUP, {"heartbeat_interval_ms": 9_000}, {"session_timeout_ms": 9_000}),
    ],
)
def test_whole_refuses_what_does_not_go_together(noun: Noun, given: Settings, known: Settings | None) -> None:
    with pytest.raises(PenstockError) as refused:
        whole(noun, given, known)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_losses_ask_where_an_older_service_does_not_tell_the_retention() -> None:
    assert [*losses(["retention_bytes"], {}, {"retention_bytes": 10})]
    assert not [*losses(["retention_bytes"], {}, {"retention_bytes": -1})]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("retention_ms", -1, "forever"), ("lock_ms", 90_000, "90s"), ("backoff_ms_min", 60_000, "1m"), ("x", -1, -1)],
)
def test_times_have_units(name: str, value: int, text: Any) -> None:
    assert unit_text(name, value) == text
    assert with_unit(name, text) == value


@pytest.mark.parametrize(("name", "text"), [("retention_ms", "14"), ("retention_bytes", "1PB"), ("lock_ms", "ever")])
def test_text_without_a_known_unit_is_refused(name: str, text: str) -> None:
    with pytest.raises(PenstockError, match=f"'{text}': write a number with its unit"):
        with_unit(name, text)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_number_that_is_not_whole_is_refused(value: object) -> None:
    with pytest.raises(PenstockError, match="is no whole number"):
        whole_number(value)
