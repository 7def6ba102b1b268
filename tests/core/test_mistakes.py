"""All mistakes of a declaration are told at once."""

import pytest

from penstock_core.errors import ErrorCode, Mistakes, PenstockError
from penstock_core.log.topic import check_declared_topic
from penstock_core.push.subscription import check_declared_subscription
from penstock_core.share.share_group import check_declared_group


def test_nothing_is_refused_when_no_check_refuses() -> None:
    mistakes = Mistakes()
    mistakes.check(int, "1")
    mistakes.refuse("topic 'a'")


def test_other_errors_are_no_mistakes() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Mistakes().check(int, "x")


def test_topic_is_refused_with_every_mistake() -> None:
    with pytest.raises(PenstockError) as refused:
        check_declared_topic("a/b", 0, {"retention_ms": "long", "colour": 1, "cleanup_policy": "delete"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    for part in ("'a/b'", "0 partitions", "retention_ms='long'", "'colour'"):
        assert part in refused.value.message
    assert "cleanup_policy=" not in refused.value.message


def test_topic_is_taken_when_it_has_no_mistake() -> None:
    check_declared_topic("orders", 6, {"retention_ms": 60_000, "cleanup_policy": None})


def test_share_group_is_refused_with_every_mistake() -> None:
    settings = {"lock_ms": 1, "ordering": "random", "filter": {"type": "order"}, "deliveries_max": 5}
    with pytest.raises(PenstockError) as refused:
        check_declared_group("a/b", settings)
    for part in ("'a/b'", "lock_ms=1", "ordering='random'", "'order'"):
        assert part in refused.value.message
    assert "deliveries_max" not in refused.value.message, "it is refused once the group is put together"


def test_subscription_is_refused_with_every_mistake() -> None:
    settings = {"batch_records": 0, "mode": "random", "filter": {"type": "order"}, "attempts_max": 5}
    with pytest.raises(PenstockError) as refused:
        check_declared_subscription("a/b", settings)
    for part in ("'a/b'", "batch_records=0", "mode='random'", "'order'"):
        assert part in refused.value.message
    assert "attempts_max" not in refused.value.message, "it is refused once the subscription is put together"
