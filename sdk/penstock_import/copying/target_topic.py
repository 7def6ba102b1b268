"""The topic that takes the records: found, or created with the settings of the source."""

from collections.abc import Mapping
from typing import Any

from penstock.admin.admin import Admin
from penstock.errors import NotFoundError, UnknownTopicError
from penstock.model import Topic
from penstock_core.errors import ErrorCode, shown
from penstock_core.limits import UNLIMITED
from penstock_core.log.topic import CLEANUP_POLICIES, TOPIC_BOUNDS
from penstock_import.source.records import SourceTopic, TopicSource

_NAMES = {  # of settings that mean the same: Kafka's and ours
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "delete.retention.ms": "delete_retention_ms",
    "max.message.bytes": "max_batch_bytes",
}


def find_topic(admin: Admin, name: str, source: SourceTopic) -> Topic:
    """The topic. Raises NotFoundError, with the ways to create it."""
    try:
        return admin.describe_topic(name).topic
    except UnknownTopicError as error:
        raise NotFoundError(
            ErrorCode.UNKNOWN_TOPIC,
            f"there is no topic {shown(name)}: add --create, or run `penstock topics create {name} --partitions "
            f"{source.partitions}`",
        ) from error


def find_or_create_topic(admin: Admin, name: str, source: SourceTopic, reader: TopicSource) -> Topic:
    """The topic; if there is none, one with the partitions and the settings of the source."""
    try:
        return admin.describe_topic(name).topic
    except UnknownTopicError:
        return admin.create_topic(name, source.partitions, settings_from(reader.topic_settings()))


def settings_from(kafka: Mapping[str, str]) -> Mapping[str, Any]:
    """Kafka's settings of a topic as ours. Each is brought into our bounds."""
    settings: dict[str, Any] = {}
    for name, own in _NAMES.items():
        if name in kafka:
            low, high = TOPIC_BOUNDS[own]
            value = int(kafka[name])
            settings[own] = UNLIMITED if value == UNLIMITED else min(max(value, low), high)
    policy = ",".join(sorted(each.strip() for each in kafka.get("cleanup.policy", "").split(",")))
    if policy in CLEANUP_POLICIES:
        settings["cleanup_policy"] = policy
    return settings
