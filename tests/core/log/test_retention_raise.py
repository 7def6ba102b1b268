from dataclasses import replace
from typing import Any

import pytest

from penstock_core.ids import TopicId, TopicName, new_segment_id
from penstock_core.limits import (
    APPEND_MS_MAX,
    EXPIRING_MARGIN_DAYS,
    EXPIRING_RETENTION_MS_MAX,
    RAISE_SETTLED_MS,
    STORAGE_REPEAT_MS_MAX,
    TRANSACTION_MS_MAX,
    UNLIMITED,
)
from penstock_core.log.ref import DAY_MS, Ref, Tier
from penstock_core.log.retention_raise import (
    RetentionRaise,
    had_expired,
    is_kept_longer,
    kept_days,
    kept_days_of_all,
    may_have_expired,
    with_config,
)
from penstock_core.log.topic import Topic, TopicConfig
from penstock_service.instance.caches import TTL_MS

NOW_MS = 1_760_000_000_000
_CLOCK_MS = 5 * 60_000  # DynamoDB refuses a request that is signed by a clock further off
_ALTER_MS = APPEND_MS_MAX + STORAGE_REPEAT_MS_MAX  # from the time of a note to its write


def topic(retention_ms: int = 7 * DAY_MS, cleanup_policy: str = "delete") -> Topic:
    return Topic(
        name=TopicName("orders"),
        topic_id=TopicId("0" * 20),
        partitions=1,
        created_at_ms=0,
        config=TopicConfig(retention_ms=retention_ms, cleanup_policy=cleanup_policy),
    )


def altered(old: Topic, now_ms: int = NOW_MS, **config: Any) -> Topic:
    return with_config(old, replace(old.config, **config), now_ms)


def ref(days: int, written_ms: int = NOW_MS) -> Ref:
    return Ref(
        segment_id=new_segment_id(written_ms, bytes(10)),
        position=0,
        length=1,
        offset_span=1,
        record_count=1,
        max_timestamp_ms=-1,
        zones=0,
        tier=Tier.EXPIRING,
        kept_days=days,
    )


@pytest.mark.parametrize(
    ("found", "days"),
    [
        (topic(), 7 + EXPIRING_MARGIN_DAYS),
        (topic(60_000), 1 + EXPIRING_MARGIN_DAYS),
        (topic(DAY_MS + 1), 2 + EXPIRING_MARGIN_DAYS),
        (topic(EXPIRING_RETENTION_MS_MAX), 21 + EXPIRING_MARGIN_DAYS),
        (topic(EXPIRING_RETENTION_MS_MAX + 1), 0),
        (topic(UNLIMITED), 0),
        (topic(cleanup_policy="compact"), 0),
        (topic(cleanup_policy="compact,delete"), 7 + EXPIRING_MARGIN_DAYS),
        (replace(topic(), retention_raise=RetentionRaise(noted_ms=1, since_ms=1, retention_ms=1)), 0),
    ],
)
def test_ttl_is_the_retention_and_nine_days_where_a_topic_takes_one(found: Topic, days: int) -> None:
    assert kept_days(found) == days


@pytest.mark.parametrize(("days", "found"), [([16, 30], 30), ([16, 0], 0), ([0], 0), ([], 0)])
def test_ttl_of_a_request_is_the_longest_and_none_if_one_topic_takes_none(days: list[int], found: int) -> None:
    assert kept_days_of_all(days) == found


def test_deleted_topic_keeps_no_item_for_more_than_thirty_days() -> None:
    assert kept_days(topic(EXPIRING_RETENTION_MS_MAX)) <= 30


@pytest.mark.parametrize(
    "config",
    [
        {"retention_ms": 8 * DAY_MS},
        {"retention_ms": UNLIMITED},
        {"cleanup_policy": "compact"},
    ],
)
def test_raise_is_noted_with_the_value_before_it(config: dict[str, Any]) -> None:
    noted = altered(topic(), **config).retention_raise
    assert noted == RetentionRaise(noted_ms=NOW_MS, since_ms=NOW_MS, retention_ms=7 * DAY_MS)


@pytest.mark.parametrize(
    ("old", "config"),
    [
        (topic(), {"retention_ms": 7 * DAY_MS}),
        (topic(), {"retention_ms": DAY_MS}),
        (topic(), {"cleanup_policy": "compact,delete"}),
        (topic(cleanup_policy="compact"), {"cleanup_policy": "delete"}),
        (topic(22 * DAY_MS), {"retention_ms": 90 * DAY_MS}),  # no item of it had a TTL
        (topic(UNLIMITED), {"cleanup_policy": "compact"}),
    ],
)
def test_nothing_is_noted_when_no_item_must_be_kept_longer(old: Topic, config: dict[str, Any]) -> None:
    assert altered(old, **config).retention_raise is None


def test_further_raise_keeps_the_first_value_and_is_another_note() -> None:
    once = altered(topic(), retention_ms=14 * DAY_MS)
    lower = altered(once, NOW_MS + 1_000, retention_ms=3 * DAY_MS)
    assert lower.retention_raise == once.retention_raise
    again = altered(lower, NOW_MS + 2_000, retention_ms=90 * DAY_MS)
    assert again.retention_raise == RetentionRaise(noted_ms=NOW_MS + 2_000, since_ms=NOW_MS, retention_ms=7 * DAY_MS)
    back = altered(again, NOW_MS - 5_000, retention_ms=91 * DAY_MS)  # by a clock that is behind
    assert back.retention_raise != again.retention_raise
    assert back.retention_raise is not None
    assert back.retention_raise.noted_ms > NOW_MS + 2_000


def test_raise_settles_after_all_that_was_begun_before_it_whatever_the_clocks() -> None:
    begun = TTL_MS + APPEND_MS_MAX + TRANSACTION_MS_MAX + APPEND_MS_MAX + 2 * STORAGE_REPEAT_MS_MAX
    assert begun + _ALTER_MS + 4 * _CLOCK_MS < RAISE_SETTLED_MS
    noted = RetentionRaise(noted_ms=NOW_MS, since_ms=NOW_MS, retention_ms=1)
    assert not noted.is_settled(NOW_MS + RAISE_SETTLED_MS - 1)
    assert noted.is_settled(NOW_MS + RAISE_SETTLED_MS)


@pytest.mark.parametrize(
    ("days", "found", "is_kept"),
    [
        (16, topic(7 * DAY_MS), False),
        (16, topic(8 * DAY_MS), True),
        (30, topic(14 * DAY_MS), False),  # written while the retention was longer
        (30, topic(UNLIMITED), True),
        (30, topic(cleanup_policy="compact"), True),
        (0, topic(UNLIMITED), False),  # it has no TTL
    ],
)
def test_item_is_kept_when_an_append_of_now_would_live_longer(days: int, found: Topic, is_kept: bool) -> None:
    assert is_kept_longer(ref(days), found) == is_kept


def test_item_may_have_expired_from_its_ttl_on() -> None:
    ends_ms = NOW_MS + 16 * DAY_MS
    assert may_have_expired(ref(16), ends_ms)
    assert not may_have_expired(ref(16), ends_ms - 2 * 3_600_000)
    assert not may_have_expired(replace(ref(16), tier=Tier.INLINE, kept_days=0), ends_ms + DAY_MS)


def test_record_had_expired_by_its_topic_or_by_the_value_before_a_raise() -> None:
    old = topic(7 * DAY_MS)
    ends_ms = 7 * DAY_MS + APPEND_MS_MAX  # when retention removes it
    assert had_expired(old, NOW_MS - ends_ms - 1, NOW_MS)
    assert not had_expired(old, NOW_MS - ends_ms, NOW_MS)
    raised = altered(old, retention_ms=UNLIMITED)
    assert had_expired(raised, NOW_MS - ends_ms - 1, NOW_MS + DAY_MS)
    assert not had_expired(raised, NOW_MS - ends_ms, NOW_MS + DAY_MS)
