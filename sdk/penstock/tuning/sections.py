"""All sections, in the order in which people read them.

The options of the clients. Names and defaults are the dataclasses', effects the first sentences of their docstrings.

So an option cannot be there without being listed: `help(penstock.Producer)` shows the same text.

The settings of topics, groups, share groups and subscriptions, which the service keeps.
"""

import inspect
import re
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any

import click

from penstock.consumer.settings import ConsumerSettings
from penstock.producer.settings import ProducerSettings
from penstock.share.settings import ShareSettings
from penstock.tuning.environment import CONNECTION, STORAGE
from penstock.tuning.setting import Section, Setting, default_of, settings_with
from penstock.tuning.stage import STAGE
from penstock_core.groups.group import GroupConfig
from penstock_core.log.topic import TopicConfig
from penstock_core.push.subscription import SubscriptionConfig
from penstock_core.share.share_group import ShareGroupConfig

_PLUGINS = "penstock.commands"  # as pyproject.toml names them: the SDK itself knows no gateway
_PLAIN = (str, int, bool)
_ATTRIBUTE = re.compile(r" {4}(?P<name>\w+): (?P<text>.*)")
_SENTENCE_END = re.compile(r'(?<=\.) +(?=["A-Z`])')
TOPIC = Section(
    name="topic",
    title="Topic",
    how="`penstock topics create | alter --config NAME=VALUE`, or `Admin.alter_topic`.",
    settings=settings_with(
        TopicConfig,
        {
            "max_batch_bytes": "The service refuses a batch of more bytes.",
            "min_insync_zones": "The service refuses appends while fewer zones are in sync.",
            "retention_ms": "Retention removes records that are older; -1 keeps them for ever.",
            "retention_bytes": "Retention removes the oldest records of a partition with more bytes; -1 is no bound.",
            "cleanup_policy": "`delete` removes old records, `compact` keeps the latest of each key; both may be set.",
            "delete_retention_ms": "Compaction keeps a tombstone for so long.",
            "validate_records": "The service decodes each batch, and refuses it if its records are not as it claims, "
            "or lack the keys that a compacted topic needs.",
            "ordering_on_change": "With wait, a change of the partitions keeps the order of keys for groups.",
            "retention": "With acknowledged, retention also removes what all readers have passed.",
            "value_schema": "The place of the values' schema, by which the job archive types them.",
            "index_tags": "Batches carry a Bloom filter of their records' tags, so filters by tag read less.",
        },
    ),
)
GROUP = Section(
    name="group",
    title="Group",
    how="`penstock groups alter --config NAME=VALUE`, `Admin.alter_group`, or the group's first consumer.",
    settings=settings_with(
        GroupConfig,
        {
            "assignor": "The way in which members share the partitions: `sticky`, `range` or `round_robin`.",
            "session_timeout_ms": "A member that the service does not hear of for so long loses its partitions.",
            "heartbeat_interval_ms": "The time between two heartbeats of a busy member.",
            "offsets_retention_ms": "The service keeps the offsets of a group without members for so long.",
        },
    ),
)
SHARE_GROUP = Section(
    name="share-group",
    title="Share group",
    how="`penstock share-groups create | alter --config NAME=VALUE`, or `Admin.create_share_group`.",
    settings=settings_with(
        ShareGroupConfig,
        {
            "lock_ms": "A record is locked for so long, unless its consumer asks for another time.",
            "deliveries_max": "After so many deliveries a record is a dead letter; 5 with a dead-letter topic.",
            "retry_backoff_ms_min": "The pause before the second delivery; it doubles with each one.",
            "retry_backoff_ms_max": "The longest pause between two deliveries.",
            "dead_letter_topic": "Records that are rejected, or delivered too often, go to this topic.",
            "ordering": "With `key`, no record comes while an earlier one of its key is unfinished.",
            "key_batch_max": "One acquire may bring so many records of one key.",
            "filter": "Records whose headers do not match count as finished.",
            "start": "The group begins with the `earliest` records, or behind the `latest`.",
            "in_flight_max": "So many records of a partition may be locked, or wait for a retry.",
            "topic_order": "With `listed`, a topic gives records for the room that those named before it leave.",
            "sharing": "With `fair`, tenants share the workers: one with many records does not hold up the others.",
            "fair_by": "What tells tenants apart: `key`, or the name of a header.",
        },
    ),
)
SUBSCRIPTION = Section(
    name="subscription",
    title="Subscription",
    how="`penstock subscriptions create | alter --config NAME=VALUE`, or `Admin.put_subscription`.",
    settings=settings_with(
        SubscriptionConfig,
        {
            "mode": "`ordered` keeps the order of a partition, `parallel` delivers each record for itself.",
            "start": "The subscription begins with the `earliest` records, or behind the `latest`.",
            "batch_records": "A delivery has at most so many records.",
            "batch_window_ms": "A delivery with fewer records waits so long for more.",
            "concurrency": "At most so many partitions are delivered at a time.",
            "filter": "Records whose headers do not match are passed over.",
            "attempts_max": "After so many attempts a record is a dead letter; 5 with a dead-letter topic.",
            "backoff_ms_min": "The pause before the second attempt; it doubles with each failure.",
            "backoff_ms_max": "The longest pause between two attempts.",
            "patience_ms": "While no delivery succeeds, no record becomes a dead letter for so long.",
            "age_ms_max": "A record that fails and is older is a dead letter at once; one without a time has no age.",
            "bisect": "A batch that fails is halved, to find the record that does.",
            "dead_letter_topic": "Records that fail too often go to this topic.",
        },
    ),
)


def first_sentences(options: type[Any]) -> dict[str, str]:
    """The first sentence of each entry below `Attributes:` in the docstring of `options`."""
    _, _, attributes = (inspect.getdoc(options) or "").partition("Attributes:\n")
    texts: dict[str, list[str]] = {}
    name = ""
    for line in attributes.splitlines():
        found = _ATTRIBUTE.fullmatch(line)
        if found:
            name = found["name"]
            texts[name] = [found["text"]]
        elif name and line.strip():
            texts[name].append(line.strip())
    return {each: first_sentence(" ".join(lines)) for each, lines in texts.items()}


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence."""
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def _gateway_options() -> tuple[Setting, ...]:
    found = [each.load() for each in entry_points(group=_PLUGINS, name="kafka")]
    return tuple(setting for command in found for setting in options_of(command))


def options_of(command: click.Command) -> tuple[Setting, ...]:
    """The command's options by their long names, in its order."""
    context = click.Context(command)
    return tuple(
        Setting(
            name=max(each.opts, key=len), default=_default(each, context), effect=first_sentence(each.help or each.name)
        )
        for each in command.params
        if isinstance(each, click.Option)
    )


def _default(option: click.Option, context: click.Context) -> object:
    """The default, None for an option that has none: click marks it by a value of its own."""
    default = option.get_default(context, call=False)
    return default if isinstance(default, _PLAIN) else None


GATEWAY = Section(
    name="gateway",
    title="Gateway for Kafka clients",
    how="Options of `penstock kafka`.",
    settings=_gateway_options(),
)


def _options(options: type[Any]) -> tuple[Setting, ...]:
    effects = first_sentences(options)
    return tuple(
        Setting(name=each.name, default=default_of(each), effect=effects[each.name]) for each in fields(options)
    )


PRODUCER = Section(
    name="producer",
    title="Producer",
    how="Arguments of `Producer` and `AsyncProducer`.",
    settings=_options(ProducerSettings),
)
CONSUMER = Section(
    name="consumer",
    title="Consumer",
    how="Arguments of `Consumer` and `AsyncConsumer`.",
    settings=_options(ConsumerSettings),
)
SHARE_CONSUMER = Section(
    name="share-consumer",
    title="Share consumer",
    how="Arguments of `ShareConsumer` and `AsyncShareConsumer`.",
    settings=_options(ShareSettings),
)
SECTIONS: tuple[Section, ...] = (
    CONNECTION,
    PRODUCER,
    CONSUMER,
    SHARE_CONSUMER,
    TOPIC,
    GROUP,
    SHARE_GROUP,
    SUBSCRIPTION,
    GATEWAY,
    STAGE,
    STORAGE,
)
BY_NAME = {section.name: section for section in SECTIONS}
