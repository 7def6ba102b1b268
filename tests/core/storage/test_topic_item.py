from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.log.topic import CLEANUP_POLICIES, MoveNote, MoveState, Topic, TopicConfig
from penstock_core.storage.topic_item import parse_topic, topic_item, topic_key
from tests.support.refusals import refused

TOPIC = Topic(name=TopicName("orders"), topic_id=TopicId("00ff"), partitions=3, created_at_ms=5)
CONFIGS = st.builds(
    TopicConfig,
    max_batch_bytes=st.integers(limits.BATCH_BYTES_MIN, limits.BATCH_BYTES_MAX),
    min_insync_zones=st.integers(1, limits.ZONES_MAX),
    retention_ms=st.just(limits.UNLIMITED) | st.integers(limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
    retention_bytes=st.just(limits.UNLIMITED) | st.integers(limits.RETENTION_BYTES_MIN, limits.RETENTION_BYTES_MAX),
    cleanup_policy=st.sampled_from(CLEANUP_POLICIES),
    delete_retention_ms=st.integers(limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
    validate_records=st.booleans(),
)


@given(
    st.builds(
        Topic,
        name=st.just(TOPIC.name),
        topic_id=st.just(TOPIC.topic_id),
        partitions=st.integers(1, 1_000),
        created_at_ms=st.integers(0, 2**48),
        config=CONFIGS,
        was_restored=st.booleans(),
        retention_raise=st.none()
        | st.builds(
            RetentionRaise,
            noted_ms=st.integers(0, 2**48),
            since_ms=st.integers(0, 2**48),
            retention_ms=st.integers(0, 2**48),
        ),
    )
)
def test_topic_survives_a_round_trip(topic: Topic) -> None:
    assert parse_topic(topic_item(topic)) == topic


def test_topic_item_leaves_defaults_to_the_code() -> None:
    assert topic_item(TOPIC) == {
        "pk": {"S": "orders"},
        "sk": {"S": "topic"},
        "topic_id": {"S": "00ff"},
        "partitions": {"N": "3"},
        "created_at_ms": {"N": "5"},
        "config": {"M": {}},
    }
    assert topic_key(TOPIC.name) == {"pk": {"S": "orders"}, "sk": {"S": "topic"}}


def test_topic_item_stores_settings_that_differ() -> None:
    config = TopicConfig(retention_ms=60_000, cleanup_policy="compact", validate_records=True)
    assert topic_item(replace(TOPIC, config=config))["config"] == {
        "M": {"retention_ms": {"N": "60000"}, "cleanup_policy": {"S": "compact"}, "validate_records": {"BOOL": True}}
    }


def test_topic_whose_readers_announce_themselves_has_a_format_that_older_releases_refuse() -> None:
    announced = replace(TOPIC, config=TopicConfig(retention="acknowledged"))
    moved = replace(announced, move=MoveNote(number=1, mirror="m", url="u", topic="t", state=MoveState.MOVED))
    assert {topic_item(each)["format_version"]["N"] for each in (announced, moved)} == {"3"}
    assert topic_item(replace(moved, config=TopicConfig()))["format_version"] == {"N": "2"}


def test_setting_of_a_newer_release_is_refused() -> None:
    item = topic_item(TOPIC) | {"config": {"M": {"colour": {"S": "red"}}}}
    refused(ErrorCode.INVALID_CONFIG, lambda: parse_topic(item))


def test_topic_remembers_that_it_was_compacted_when_compaction_is_turned_off() -> None:
    compacted = replace(TOPIC, config=TopicConfig(cleanup_policy="compact"))
    stored = parse_topic(topic_item(replace(compacted, config=TopicConfig())))
    assert (stored.config.is_compacted, stored.was_compacted, TOPIC.was_compacted) == (False, True, False)
