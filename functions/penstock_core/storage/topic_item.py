"""The item of a topic.

```
topics table   pk topic name   sk "topic"
topic_id        S   20 hexadecimal digits, never used again
partitions      N   how many partitions the topic has
created_at_ms   N   when it was created
config          M   settings that differ from their defaults: N, S for cleanup_policy, BOOL for flags
was_compacted   BOOL  compaction was on at some time; missing: never
writable_partitions  N  how many take new records; missing: all
layout_number   N   how often the writable partitions have changed; missing: never
heads           N   how many heads there are; missing: one for each partition
generation_starts    L  the first partition of each generation, N; missing: only 0
opening_partitions   N  how many partitions the generation that is opening gets; missing: none is opening
was_restored       BOOL  heads of the topic have jumps; missing: none has
retention_raise    M     a raise of the retention that has not reached all items; missing: none. N, all milliseconds:
                         noted_ms, since_ms, retention_ms (log/retention_raise.py)
mirror             M     `Topic.mirror`; missing: the topic takes appends. S name, topic_id, source; N settings_ms,
                         decided, refused; missing the last two: -1 and 0
move               M     `Topic.move`; missing: it was never moved. N number; S mirror, url, topic, state
format_version     N     2 while the topic is moved, so that no older release alters it; 3 with retention=acknowledged,
                         so that no older release commits without an announcement; else missing
ordering_on_change   S  that setting; missing: its default. Older releases refuse unknown settings in `config`
retention            S  the same
value_schema         S  the same
acknowledged_since_ms  N  `Topic.acknowledged_since_ms`
```

The item that notes a topic id without a name: a deleted topic, or one whose creation has not ended.

The retention job removes the heads and pages of the topic ids that it finds here.

```
topics table   pk "#deleted"   sk topic id
name                 S     the topic's name
partitions           N     how many heads there may be
deleted_at_ms        N     when the topic was deleted, or its creation began
is_being_created     BOOL  true; absent from a deleted topic
heads_removed_at_ms  N     when none of its heads was left; absent before
```
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock_core.formats import FORMAT_ATTRIBUTE, check_item
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.log.topic import (
    ACKNOWLEDGED,
    DeletedTopic,
    MirrorNote,
    MoveNote,
    MoveState,
    Topic,
    TopicConfig,
    alter_config,
    config_to_json,
)
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalUpdate, Item, number

WRITABLE = "writable_partitions"
LAYOUT = "layout_number"
HEADS = "heads"
GENERATIONS = "generation_starts"
OPENING = "opening_partitions"
ORDERING = "ordering_on_change"
RESTORED = "was_restored"
RAISE = "retention_raise"
MIRROR = "mirror"
MOVE = "move"
RETENTION = "retention"
SINCE = "acknowledged_since_ms"
VALUE_SCHEMA = "value_schema"
_OUTSIDE = (ORDERING, RETENTION, VALUE_SCHEMA)  # settings that are not in `config`
# that `retiring` and `next_generation` name
LAYOUT_ATTRIBUTES = ("pk", "sk", "topic_id", "partitions", "heads", WRITABLE, LAYOUT, GENERATIONS, OPENING)
RAISE_ATTRIBUTES = ("pk", "sk", "topic_id", RAISE)  # that `raise_ended` names
TOPIC_OPTIONAL = (
    *("was_compacted", WRITABLE, LAYOUT, HEADS, GENERATIONS, OPENING, RESTORED, RAISE, MIRROR, MOVE, SINCE),
    *(FORMAT_ATTRIBUTE, *_OUTSIDE),
)
_MOVED_FORMAT, _ACKNOWLEDGED_FORMAT = 2, 3
_UNSAID = (("decided", -1), ("refused", 0))  # of most mirrors


def topic_key(name: TopicName) -> Item:
    """The key of the topic of that name."""
    return {"pk": {"S": name}, "sk": {"S": keys.TOPIC}}


def topic_item(topic: Topic) -> Item:
    """The whole item. It stores no default setting, so that a default can change with the code."""
    defaults = config_to_json(TopicConfig())
    set_values = {name: value for name, value in config_to_json(topic.config).items() if value != defaults[name]}
    item: Item = {
        **topic_key(topic.name),
        "topic_id": {"S": topic.topic_id},
        "partitions": number(topic.partitions),
        "created_at_ms": number(topic.created_at_ms),
        "config": {"M": {name: _setting(value) for name, value in set_values.items() if name not in _OUTSIDE}},
    }
    item |= {name: _setting(set_values[name]) for name in _OUTSIDE if name in set_values}
    if topic.acknowledged_since_ms is not None:
        item[SINCE] = number(topic.acknowledged_since_ms)
    if topic.was_compacted:
        item["was_compacted"] = {"BOOL": True}
    if topic.writable is not None:
        item[WRITABLE] = number(topic.writable)
    if topic.layout:
        item[LAYOUT] = number(topic.layout)
    if topic.heads is not None:
        item[HEADS] = number(topic.heads)
    if len(topic.generations) > 1:
        item[GENERATIONS] = {"L": [number(start) for start in topic.generations]}
    if topic.was_restored:
        item[RESTORED] = {"BOOL": True}
    if topic.opening is not None:
        item[OPENING] = number(topic.opening)
    return item | _format(topic) | _notes(topic)


def _format(topic: Topic) -> Item:
    if topic.config.retention == ACKNOWLEDGED:
        return {FORMAT_ATTRIBUTE: number(_ACKNOWLEDGED_FORMAT)}
    return {FORMAT_ATTRIBUTE: number(_MOVED_FORMAT)} if topic.is_moved else {}


def _notes(topic: Topic) -> Item:
    notes = {RAISE: topic.retention_raise, MIRROR: topic.mirror, MOVE: topic.move}
    return {
        name: {
            "M": {
                field: _setting(value)
                for each in asdict(note).items()
                if each not in _UNSAID
                for field, value in [each]
            }
        }
        for name, note in notes.items()
        if note is not None
    }


def retiring(old: Topic, new: Topic) -> ConditionalUpdate:
    """Takes the last partitions of `old` away, if its partitions are still those. It touches no setting."""
    stored, wanted = topic_item(old), topic_item(new)
    sets, removals = ["#partitions = :new", f"{HEADS} = :heads"], ""
    values: Item = {
        ":new": wanted["partitions"],
        ":heads": wanted[HEADS],
        ":id": stored["topic_id"],
        ":old": stored["partitions"],
        ":layout": stored[LAYOUT],
    }
    if WRITABLE in wanted:
        sets.append(f"{WRITABLE} = :writable")
        values[":writable"] = wanted[WRITABLE]
    else:
        removals = f" REMOVE {WRITABLE}"
    return ConditionalUpdate(
        key=topic_key(old.name),
        update=f"SET {', '.join(sets)}{removals}",
        condition=f"topic_id = :id AND #partitions = :old AND {LAYOUT} = :layout",
        values=values,
        names={"#partitions": "partitions"},
    )


def next_generation(old: Topic) -> ConditionalUpdate:
    """Lets the generation that `old` opens take the records, if nobody has done so since. It touches no setting."""
    stored, wanted = topic_item(old), topic_item(old.with_next_generation())
    return ConditionalUpdate(
        key=topic_key(old.name),
        update=f"SET #partitions = :new, {GENERATIONS} = :generations REMOVE {WRITABLE}, {HEADS}, {OPENING}",
        condition=f"topic_id = :id AND #partitions = :old AND {LAYOUT} = :layout AND {OPENING} = :opening",
        values={
            ":new": wanted["partitions"],
            ":generations": wanted[GENERATIONS],
            ":id": stored["topic_id"],
            ":old": stored["partitions"],
            ":layout": stored[LAYOUT],
            ":opening": stored[OPENING],
        },
        names={"#partitions": "partitions"},
    )


def raise_ended(topic: Topic) -> ConditionalUpdate:
    """Removes the note of the topic's raise, if it is still this one. It touches no setting."""
    stored = topic_item(topic)
    return ConditionalUpdate(
        key=topic_key(topic.name),
        update=f"REMOVE {RAISE}",
        condition=f"topic_id = :id AND {RAISE} = :raise",
        values={":id": stored["topic_id"], ":raise": stored[RAISE]},
    )


_DEFAULTS = TopicConfig()


def parse_topic(item: Mapping[str, Any]) -> Topic:
    """The inverse of `topic_item`. Raises INVALID_CONFIG for a setting that this release does not know."""
    check_item("topic", item)
    config = {name: _parse_setting(value) for name, value in item["config"]["M"].items()}
    config |= {name: _parse_setting(item[name]) for name in _OUTSIDE if name in item}
    return Topic(
        name=TopicName(item["pk"]["S"]),
        topic_id=TopicId(item["topic_id"]["S"]),
        partitions=int(item["partitions"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]),
        config=alter_config(_DEFAULTS, config),
        was_compacted="was_compacted" in item,
        writable=int(item[WRITABLE]["N"]) if WRITABLE in item else None,
        layout=int(item[LAYOUT]["N"]) if LAYOUT in item else 0,
        heads=int(item[HEADS]["N"]) if HEADS in item else None,
        generations=tuple(int(start["N"]) for start in item[GENERATIONS]["L"]) if GENERATIONS in item else (0,),
        opening=int(item[OPENING]["N"]) if OPENING in item else None,
        was_restored=RESTORED in item,
        retention_raise=_parse_raise(item[RAISE]["M"]) if RAISE in item else None,
        mirror=_parse_mirror(item[MIRROR]["M"]) if MIRROR in item else None,
        move=_parse_move(item[MOVE]["M"]) if MOVE in item else None,
        acknowledged_since_ms=int(item[SINCE]["N"]) if SINCE in item else None,
    )


def _parse_raise(fields: Mapping[str, Any]) -> RetentionRaise:
    return RetentionRaise(
        noted_ms=int(fields["noted_ms"]["N"]),
        since_ms=int(fields["since_ms"]["N"]),
        retention_ms=int(fields["retention_ms"]["N"]),
    )


def _parse_mirror(fields: Mapping[str, Any]) -> MirrorNote:
    return MirrorNote(
        name=fields["name"]["S"],
        topic_id=fields["topic_id"]["S"],
        source=fields["source"]["S"],
        settings_ms=int(fields["settings_ms"]["N"]),
        decided=int(fields["decided"]["N"]) if "decided" in fields else -1,
        refused=int(fields["refused"]["N"]) if "refused" in fields else 0,
    )


def _parse_move(fields: Mapping[str, Any]) -> MoveNote:
    return MoveNote(
        number=int(fields["number"]["N"]),
        mirror=fields["mirror"]["S"],
        url=fields["url"]["S"],
        topic=fields["topic"]["S"],
        state=MoveState(fields["state"]["S"]),
    )


def _setting(value: int | str | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"S": value} if isinstance(value, str) else number(value)


def _parse_setting(value: Mapping[str, Any]) -> int | str | bool:
    if "BOOL" in value:
        return bool(value["BOOL"])
    return str(value["S"]) if "S" in value else int(value["N"])


def deleted_topic_item(note: DeletedTopic) -> Item:
    """The whole item, for a PutItem."""
    item = {
        **deleted_topic_key(note.topic_id),
        "name": {"S": note.name},
        "partitions": number(note.partitions),
        "deleted_at_ms": number(note.deleted_at_ms),
    }
    if note.heads_removed_at_ms is not None:
        item["heads_removed_at_ms"] = number(note.heads_removed_at_ms)
    return item | {"is_being_created": {"BOOL": True}} if note.is_being_created else item


def deleted_topic_key(topic_id: TopicId) -> Item:
    """The key of the topic id's note."""
    return {"pk": {"S": keys.DELETED}, "sk": {"S": topic_id}}


def parse_deleted_topic(item: Mapping[str, Any]) -> DeletedTopic:
    """The inverse of `deleted_topic_item`."""
    check_item("deleted_topic", item)
    return DeletedTopic(
        topic_id=TopicId(item["sk"]["S"]),
        name=TopicName(item["name"]["S"]),
        partitions=int(item["partitions"]["N"]),
        deleted_at_ms=int(item["deleted_at_ms"]["N"]),
        is_being_created="is_being_created" in item,
        heads_removed_at_ms=int(item["heads_removed_at_ms"]["N"]) if "heads_removed_at_ms" in item else None,
    )
