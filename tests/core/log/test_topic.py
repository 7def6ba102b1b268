import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_group_name, parse_topic_name
from penstock_core.log.topic import TopicConfig, alter_config, check_compaction, check_declared_topic, check_partitions


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249])
def test_names_of_kafka_are_accepted(name: str) -> None:
    assert parse_topic_name(name) == name
    assert parse_group_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a#b", "ä", "a\n", "x" * 250])
def test_other_names_are_refused_with_the_value(name: str) -> None:
    for parse in (parse_topic_name, parse_group_name):
        with pytest.raises(PenstockError) as caught:
            parse(name)
        assert caught.value.code is ErrorCode.INVALID_NAME
        assert repr(name) in caught.value.message or "250 characters" in caught.value.message


def test_alter_config_changes_and_resets() -> None:
    altered = alter_config(TopicConfig(), {"max_batch_bytes": 4096})
    assert altered == TopicConfig(max_batch_bytes=4096)
    assert alter_config(altered, {}) == altered
    assert alter_config(altered, {"max_batch_bytes": None}) == TopicConfig()


@pytest.mark.parametrize(
    "value", [limits.BATCH_BYTES_MIN - 1, limits.BATCH_BYTES_MAX + 1, "4096", 4096.0, True, [], -1]
)
def test_alter_config_refuses_values_out_of_bounds(value: object) -> None:
    with pytest.raises(PenstockError) as caught:
        alter_config(TopicConfig(), {"max_batch_bytes": value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert repr(value) in caught.value.message


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("retention_ms", limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
        ("retention_bytes", limits.RETENTION_BYTES_MIN, limits.RETENTION_BYTES_MAX),
    ],
)
def test_retention_is_within_bounds_or_unlimited(name: str, low: int, high: int) -> None:
    for value in (low, high, limits.UNLIMITED):
        assert getattr(alter_config(TopicConfig(), {name: value}), name) == value
    for bad in (low - 1, high + 1, 0, -2, -1.0, True, "1d"):
        with pytest.raises(PenstockError, match="or -1 for no limit") as caught:
            alter_config(TopicConfig(), {name: bad})
        assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_topics_keep_records_for_two_weeks_whatever_their_size_by_default() -> None:
    assert (TopicConfig().retention_ms, TopicConfig().retention_bytes) == (14 * 86_400_000, -1)


def test_alter_config_refuses_unknown_settings() -> None:
    with pytest.raises(PenstockError, match=r"max_batch_byte'.*known are cleanup_policy, .*max_batch_bytes"):
        alter_config(TopicConfig(), {"max_batch_byte": 4096})


@pytest.mark.parametrize("count", [0, -1, limits.TOPIC_PARTITIONS_MAX + 1])
def test_partition_counts_out_of_bounds_are_refused(count: int) -> None:
    with pytest.raises(PenstockError, match=str(count)):
        check_partitions(count)


def test_partition_counts_within_bounds_are_accepted() -> None:
    assert check_partitions(1) == 1
    assert check_partitions(limits.TOPIC_PARTITIONS_MAX) == limits.TOPIC_PARTITIONS_MAX


@pytest.mark.parametrize(
    ("given", "policy", "is_compacted", "is_expiring"),
    [
        ("delete", "delete", False, True),
        ("compact", "compact", True, False),
        ("compact,delete", "compact,delete", True, True),
        ("delete, compact", "compact,delete", True, True),
    ],
)
def test_cleanup_policy_is_one_or_both(given: str, policy: str, is_compacted: bool, is_expiring: bool) -> None:
    config = alter_config(TopicConfig(), {"cleanup_policy": given})
    assert (config.cleanup_policy, config.is_compacted, config.is_expiring) == (policy, is_compacted, is_expiring)


@pytest.mark.parametrize("given", ["", "compacted", "compact,compact", 1, True, ["compact"]])
def test_other_cleanup_policies_are_refused(given: object) -> None:
    with pytest.raises(PenstockError, match="must be 'delete', 'compact', 'compact,delete'") as caught:
        alter_config(TopicConfig(), {"cleanup_policy": given})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert repr(given) in caught.value.message


@pytest.mark.parametrize(
    ("settings", "generations", "is_refused"),
    [
        ({"cleanup_policy": "compact", "ordering_on_change": "wait"}, 1, True),
        ({"cleanup_policy": "compact,delete"}, 2, True),
        ({"cleanup_policy": "compact"}, 1, False),
        ({"ordering_on_change": "wait"}, 2, False),
        ({"cleanup_policy": "compact,delete", "retention": "acknowledged"}, 1, True),
        ({"retention": "acknowledged"}, 2, False),
    ],
)
def test_compacted_topic_has_no_generations_nor_readers_that_empty_it(
    settings: dict[str, str], generations: int, *, is_refused: bool
) -> None:
    config = alter_config(TopicConfig(), settings)
    if is_refused:
        with pytest.raises(PenstockError, match="choose cleanup_policy='delete'") as caught:
            check_compaction(config, generations)
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    else:
        check_compaction(config, generations)


@pytest.mark.parametrize("given", ["", "acked", "time,acknowledged", 1, True, ["time"]])
def test_other_retentions_are_refused(given: object) -> None:
    with pytest.raises(PenstockError, match="must be 'time' or 'acknowledged'") as caught:
        alter_config(TopicConfig(), {"retention": given})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert repr(given) in caught.value.message


def test_declared_topic_is_refused_when_it_is_compacted_and_waits() -> None:
    with pytest.raises(PenstockError, match="older partitions"):
        check_declared_topic("orders", 1, {"cleanup_policy": "compact", "ordering_on_change": "wait"})
