"""The micro-operations, from and to JSON. `format` has those of logs.

| micro-operation of delayed records, share groups and dead letters | |
|---|---|
| `["schedule", topic, partition, value, due_ns, id]` | a delayed record, due then by the history's clock |
| `["cancel", topic, id]` | of the delayed records that wait under this id |
| `["share", {"topics": […], …}]` | the settings of the operation's group |
| `["nonce", text]` | the name of an acquire, the same for all its tries; its locks begin with it and a point |
| `["acquired", topic, partition, lock_id, delivery_count, left_ms, [[offset, value], …]]` | the records of one lock |
| `["acknowledge", topic, partition, lock_id, verb, ranges]` | half-open ranges; null: the whole lock |
| `["acknowledge", …, result]` | `ok`, `done` or `LOCK_LOST` |
| `["acknowledge", …, result, detail]` | the reason of a reject, or the milliseconds of a renewal |
| `["dead-letters", topic, partition, [[offset, value, key, origin], …]]` | the dead letters that a reader found |
| `["drained", topic]` | the group has nothing left; the client began to look after all sends had ended |

- Settings: `topics`, and perhaps `deliveries_max`, `ordering`, `dead_letter_topic`, and `ending`. A group with an
  `ending` gets only the records whose value ends so.
- `left_ms` is the time that the lock had left when the service answered.
- A verb is `accept`, `release`, `give-back` (a release that takes the delivery back), `reject` or `renew`.
- An origin is `[topic, partition, offset, group, deliveries, reason]`, as the headers tell it.

| micro-operation of push subscriptions | |
|---|---|
| `["push", {"topics": […], …}]` | the settings of the operation's push subscription, which it creates |
| `["handle", topic, partition, [[offset, value], …]]` | one partition's records that its target was given |
| `["handle", …, [offset, …]]` | and those of them that the target's answer names as failed |
| `["copies", topic, partition, [[offset, value], …]]` | what a reader found in the topic that it copies to |
| `["disturb", why]` or `["disturb", why, lasts_ms]` | answers may have been lost meanwhile, and for a while after |

- Settings: `topics`, and perhaps `ordering` (`partition` or `none`), `dead_letter_topic`, `ending`, `start` (`earliest`
  or `latest`), `copies_to`, `lock_ms` and `is_complete`. `format.Push` tells what they mean.
- A `handle` that is `ok` has what was handled. A `fail` handled nothing. A maybe may have handled what its invoke has.
- A `disturb` of a `group` concerns this subscription, one without a group all of them.
- `stop` and `resume` have no micro-operations. Their `group` names the subscription.
"""

from collections.abc import Callable
from typing import assert_never

from tests.history.fields import (
    FieldError,
    choice_of,
    is_set,
    length_of,
    list_of,
    number_of,
    optional_number_of,
    optional_text_of,
    records_of,
    settings_of,
    text_of,
    value_of,
    where_of,
)
from tests.history.format import (
    Acknowledge,
    AckResult,
    Acquired,
    Assign,
    Cancel,
    Commit,
    Committed,
    Copies,
    DeadLetter,
    DeadLetters,
    Disturb,
    Drained,
    Handling,
    MicroOp,
    Nonce,
    Poll,
    Push,
    Reset,
    Schedule,
    Seek,
    Send,
    Share,
    Source,
    Subscribe,
    Truncate,
    Verb,
)


def encode_micro_op(op: MicroOp) -> list[object]:
    """Encode the micro-operation as JSON values."""
    match op:
        case Send((topic, partition), value, offset, None, None):
            return ["send", topic, partition, value, offset]
        case Send((topic, partition), value, offset, source, key):
            told = None if source is None else list(source) if source[-1] else list(source[:-1])
            return ["send", topic, partition, value, offset, told, *([] if key is None else [key])]
        case Poll((topic, partition), records, None, None):
            return ["poll", topic, partition, records]
        case Poll((topic, partition), records, end_offset, None):
            return ["poll", topic, partition, records, end_offset]
        case Poll((topic, partition), records, end_offset, ending):
            return ["poll", topic, partition, records, end_offset, ending]
        case Commit((topic, partition), offset, lease_epoch):
            return ["commit", topic, partition, offset, *([] if lease_epoch is None else [lease_epoch])]
        case Reset((topic, partition), offset):
            return ["reset", topic, partition, offset]
        case Committed((topic, partition), offset):
            return ["committed", topic, partition, offset]
        case Assign(kept, started):
            return ["assign", [*kept, *((topic, partition, offset) for (topic, partition), offset in started)]]
        case Subscribe(topics):
            return ["subscribe", topics]
        case Seek((topic, partition), position):
            return ["seek", topic, partition, position]
        case Truncate((topic, partition), before_offset):
            return ["truncate", topic, partition, before_offset]
        case Schedule((topic, partition), value, due_ns, id):
            return ["schedule", topic, partition, value, due_ns, id]
        case Cancel(topic, id):
            return ["cancel", topic, id]
        case Share():
            return ["share", _share_to_json(op)]
        case Nonce(text):
            return ["nonce", text]
        case Acquired((topic, partition), lock_id, delivery_count, left_ms, records):
            return ["acquired", topic, partition, lock_id, delivery_count, left_ms, records]
        case Acknowledge((topic, partition), lock_id, verb, ranges, result, detail):
            answer: list[object] = [] if result is detail is None else [result] if detail is None else [result, detail]
            return ["acknowledge", topic, partition, lock_id, verb, ranges, *answer]
        case DeadLetters((topic, partition), letters):
            return ["dead-letters", topic, partition, [_letter_to_json(each) for each in letters]]
        case Drained(topic):
            return ["drained", topic]
        case Push():
            return ["push", _push_to_json(op)]
        case Handling((topic, partition), records, refused):
            return ["handle", topic, partition, records, *([refused] if refused else [])]
        case Copies((topic, partition), records):
            return ["copies", topic, partition, records]
        case Disturb(why, lasts_ms):
            return ["disturb", why, *([lasts_ms] if lasts_ms else [])]
        case _:
            assert_never(op)


def decode_micro_op(name: str, op: list[object]) -> MicroOp:
    """Decode the elements of a micro-operation, the name included. Raises FieldError."""
    least, most, parse = DECODERS[name]
    length_of(op, least, most)
    return parse(op)


def _share_to_json(share: Share) -> dict[str, object]:
    return {
        "topics": share.topics,
        "deliveries_max": share.deliveries_max,
        "ordering": "key" if share.is_by_key else "none",
        "dead_letter_topic": share.dead_letter_topic,
        "ending": share.ending,
    }


def _push_to_json(push: Push) -> dict[str, object]:
    return {
        "topics": push.topics,
        "ordering": "partition" if push.is_ordered else "none",
        "dead_letter_topic": push.dead_letter_topic,
        "ending": push.ending,
        "start": "latest" if push.is_latest else "earliest",
        "copies_to": push.copies_to,
        "lock_ms": push.lock_ms,
        "is_complete": push.is_complete,
    }


def _letter_to_json(letter: DeadLetter) -> list[object]:
    origin = (*letter.origin, letter.origin_offset, letter.group, letter.deliveries, letter.reason)
    return [letter.offset, letter.value, letter.key, origin]


def _parse_send(op: list[object]) -> Send:
    length = len(op)
    offset = optional_number_of(op[4], "offset") if length > 4 else None
    key = text_of(op[6], "key") if length > 6 else None
    return Send(where_of(op), value_of(op[3]), offset, _source(op[5]) if length > 5 else None, key)


def _source(value: object) -> Source | None:
    if value is None:
        return None
    source = ["source", *list_of(value, "source")]
    name = text_of(source[4], "source name") if length_of(source, 4, 5) == 5 else ""
    topic, partition = where_of(source)
    return topic, partition, number_of(source[3], "source offset"), name


def _parse_poll(op: list[object]) -> Poll:
    length = len(op)
    end_offset = optional_number_of(op[4], "end_offset") if length > 4 else None
    ending = text_of(op[5], "ending") if length > 5 else None
    return Poll(where_of(op), records_of(op[3]), end_offset, ending)


def _parse_assign(op: list[object]) -> Assign:
    kept, started = [], []
    for entry in list_of(op[1], "assignment"):
        partition = ["assign", *list_of(entry, "assigned partition")]
        if length_of(partition, 3, 4) == 3:
            kept.append(where_of(partition))
        else:
            started.append((where_of(partition), optional_number_of(partition[3], "position")))
    return Assign(tuple(kept), tuple(started))


def _topics(value: object) -> tuple[str, ...]:
    return tuple(text_of(topic, "topic") for topic in list_of(value, "topics"))


def _parse_share(op: list[object]) -> Share:
    get = settings_of(op, {"topics", "deliveries_max", "ordering", "dead_letter_topic", "ending"}).get
    return Share(
        topics=_topics(get("topics")),
        deliveries_max=optional_number_of(get("deliveries_max"), "deliveries_max"),
        is_by_key=choice_of(get("ordering", "none"), "ordering", "none", "key") == "key",
        dead_letter_topic=optional_text_of(get("dead_letter_topic"), "dead_letter_topic"),
        ending=optional_text_of(get("ending"), "ending"),
    )


def _parse_acquired(op: list[object]) -> Acquired:
    count, left_ms = number_of(op[4], "delivery_count"), number_of(op[5], "left_ms")
    return Acquired(where_of(op), text_of(op[3], "lock_id"), count, left_ms, records_of(op[6]))


def _parse_acknowledge(op: list[object]) -> Acknowledge:
    result = op[6] if len(op) > 6 else None
    return Acknowledge(
        where_of(op),
        text_of(op[3], "lock_id"),
        Verb(choice_of(op[4], "verb", *Verb)),
        None if op[5] is None else tuple(_range(each) for each in list_of(op[5], "ranges")),
        None if result is None else AckResult(choice_of(result, "result", *AckResult)),
        value_of(op[7]) if len(op) > 7 else None,
    )


def _range(value: object) -> tuple[int, int]:
    ends = list_of(value, "range")
    if len(ends) != 2:
        raise FieldError(f"a range is [start, end], not {value!r}")
    start, end = number_of(ends[0], "start"), number_of(ends[1], "end")
    if start >= end:
        raise FieldError(f"range {value!r} is empty")
    return start, end


def _parse_letter(value: object) -> DeadLetter:
    letter = list_of(value, "dead letter")
    if len(letter) != 4:
        raise FieldError(f"a dead letter is [offset, value, key, origin], not {letter!r}")
    origin = ["origin", *list_of(letter[3], "origin")]
    length_of(origin, 7, 7)
    return DeadLetter(
        offset=number_of(letter[0], "offset"),
        value=value_of(letter[1]),
        key=optional_text_of(letter[2], "key"),
        origin=where_of(origin),
        origin_offset=number_of(origin[3], "origin offset"),
        group=text_of(origin[4], "group"),
        deliveries=number_of(origin[5], "deliveries"),
        reason=text_of(origin[6], "reason"),
    )


def _parse_push(op: list[object]) -> Push:
    known = ("topics", "ordering", "dead_letter_topic", "ending", "start", "copies_to", "lock_ms", "is_complete")
    get = settings_of(op, {*known}).get
    return Push(
        topics=_topics(get("topics")),
        is_ordered=choice_of(get("ordering", "partition"), "ordering", "partition", "none") == "partition",
        dead_letter_topic=optional_text_of(get("dead_letter_topic"), "dead_letter_topic"),
        ending=optional_text_of(get("ending"), "ending"),
        is_latest=choice_of(get("start", "earliest"), "start", "earliest", "latest") == "latest",
        copies_to=optional_text_of(get("copies_to"), "copies_to"),
        lock_ms=optional_number_of(get("lock_ms"), "lock_ms"),
        is_complete=is_set(get("is_complete"), "is_complete"),
    )


def _parse_handling(op: list[object]) -> Handling:
    refused = list_of(op[4], "refused") if len(op) > 4 else []
    return Handling(where_of(op), records_of(op[3]), tuple(number_of(each, "refused offset") for each in refused))


# By name: the fewest and the most elements, and the parser.
DECODERS: dict[str, tuple[int, int, Callable[[list[object]], MicroOp]]] = {
    "send": (4, 7, _parse_send),
    "poll": (4, 6, _parse_poll),
    "commit": (
        *(4, 5),
        lambda op: Commit(where_of(op), number_of(op[3], "offset"), optional_number_of([*op, None][4], "lease_epoch")),
    ),
    "committed": (4, 4, lambda op: Committed(where_of(op), optional_number_of(op[3], "offset"))),
    "reset": (4, 4, lambda op: Reset(where_of(op), optional_number_of(op[3], "offset"))),
    "assign": (2, 2, _parse_assign),
    "subscribe": (2, 2, lambda op: Subscribe(_topics(op[1]))),
    "seek": (4, 4, lambda op: Seek(where_of(op), optional_number_of(op[3], "position"))),
    "truncate": (4, 4, lambda op: Truncate(where_of(op), number_of(op[3], "before_offset"))),
    "schedule": (
        *(6, 6),
        lambda op: Schedule(where_of(op), value_of(op[3]), number_of(op[4], "due_ns"), text_of(op[5], "id")),
    ),
    "cancel": (3, 3, lambda op: Cancel(text_of(op[1], "topic"), text_of(op[2], "id"))),
    "share": (2, 2, _parse_share),
    "nonce": (2, 2, lambda op: Nonce(text_of(op[1], "nonce"))),
    "acquired": (7, 7, _parse_acquired),
    "acknowledge": (6, 8, _parse_acknowledge),
    "dead-letters": (
        *(4, 4),
        lambda op: DeadLetters(where_of(op), tuple(_parse_letter(each) for each in list_of(op[3], "dead letters"))),
    ),
    "drained": (2, 2, lambda op: Drained(text_of(op[1], "topic"))),
    "push": (2, 2, _parse_push),
    "handle": (4, 5, _parse_handling),
    "copies": (4, 4, lambda op: Copies(where_of(op), records_of(op[3]))),
    "disturb": (2, 3, lambda op: Disturb(text_of(op[1], "why"), number_of([*op, 0][2], "lasts_ms"))),
}
