"""The micro-operations of delayed records, share groups and dead letters, from and to JSON. See `format`.

| micro-operation | |
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

`push/codec.py` has those of push subscriptions.

- Settings: `topics`, and perhaps `deliveries_max`, `ordering`, `dead_letter_topic`, and `ending`. A group with an
  `ending` gets only the records whose value ends so.
- `left_ms` is the time that the lock had left when the service answered.
- A verb is `accept`, `release`, `give-back` (a release that takes the delivery back), `reject` or `renew`.
- An origin is `[topic, partition, offset, group, deliveries, reason]`, as the headers tell it.
"""

from collections.abc import Callable

from tests.history.fields import (
    FieldError,
    choice_of,
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
    Cancel,
    DeadLetter,
    DeadLetters,
    Drained,
    MicroOp,
    Nonce,
    QueueOp,
    Schedule,
    Share,
    Verb,
)
from tests.history.push.codec import PUSH_DECODERS, encode_push_op


def encode_queue_op(op: QueueOp) -> list[object]:
    """Encode the micro-operation as JSON values."""
    match op:
        case Schedule((topic, partition), value, due_ns, id):
            return ["schedule", topic, partition, value, due_ns, id]
        case Cancel(topic, id):
            return ["cancel", topic, id]
        case Share():
            return ["share", _settings_to_json(op)]
        case Nonce(text):
            return ["nonce", text]
        case Acquired((topic, partition), lock_id, delivery_count, left_ms, records):
            return ["acquired", topic, partition, lock_id, delivery_count, left_ms, records]
        case Acknowledge((topic, partition), lock_id, verb, ranges, result, detail):
            told: list[object] = [] if result is detail is None else [result] if detail is None else [result, detail]
            return ["acknowledge", topic, partition, lock_id, verb, ranges, *told]
        case DeadLetters((topic, partition), letters):
            return ["dead-letters", topic, partition, [_letter_to_json(each) for each in letters]]
        case Drained(topic):
            return ["drained", topic]
        case _:
            return encode_push_op(op)


def _settings_to_json(share: Share) -> dict[str, object]:
    return {
        "topics": share.topics,
        "deliveries_max": share.deliveries_max,
        "ordering": "key" if share.is_by_key else "none",
        "dead_letter_topic": share.dead_letter_topic,
        "ending": share.ending,
    }


def _letter_to_json(letter: DeadLetter) -> list[object]:
    origin = (*letter.origin, letter.origin_offset, letter.group, letter.deliveries, letter.reason)
    return [letter.offset, letter.value, letter.key, origin]


def _parse_schedule(op: list[object]) -> Schedule:
    length_of(op, 6, 6)
    return Schedule(where_of(op), value_of(op[3]), number_of(op[4], "due_ns"), text_of(op[5], "id"))


def _parse_cancel(op: list[object]) -> Cancel:
    length_of(op, 3, 3)
    return Cancel(text_of(op[1], "topic"), text_of(op[2], "id"))


def _parse_share(op: list[object]) -> Share:
    settings = settings_of(op, _SETTINGS)
    ordering = choice_of(settings.get("ordering", "none"), "ordering", "none", "key")
    return Share(
        topics=tuple(text_of(topic, "topic") for topic in list_of(settings.get("topics"), "topics")),
        deliveries_max=optional_number_of(settings.get("deliveries_max"), "deliveries_max"),
        is_by_key=ordering == "key",
        dead_letter_topic=optional_text_of(settings.get("dead_letter_topic"), "dead_letter_topic"),
        ending=optional_text_of(settings.get("ending"), "ending"),
    )


def _parse_nonce(op: list[object]) -> Nonce:
    length_of(op, 2, 2)
    return Nonce(text_of(op[1], "nonce"))


def _parse_acquired(op: list[object]) -> Acquired:
    length_of(op, 7, 7)
    count, left_ms = number_of(op[4], "delivery_count"), number_of(op[5], "left_ms")
    return Acquired(where_of(op), text_of(op[3], "lock_id"), count, left_ms, records_of(op[6]))


def _parse_acknowledge(op: list[object]) -> Acknowledge:
    length = length_of(op, 6, 8)
    verb, result = text_of(op[4], "verb"), optional_text_of(op[6] if length > 6 else None, "result")
    if verb not in list(Verb):
        raise FieldError(f"verb {verb!r} is none of {', '.join(Verb)}")
    if result is not None and result not in list(AckResult):
        raise FieldError(f"result {result!r} is none of {', '.join(AckResult)}")
    return Acknowledge(
        where_of(op),
        text_of(op[3], "lock_id"),
        Verb(verb),
        None if op[5] is None else tuple(_range(each) for each in list_of(op[5], "ranges")),
        None if result is None else AckResult(result),
        value_of(op[7]) if length > 7 else None,
    )


def _range(value: object) -> tuple[int, int]:
    ends = list_of(value, "range")
    if len(ends) != 2:
        raise FieldError(f"a range is [start, end], not {value!r}")
    start, end = number_of(ends[0], "start"), number_of(ends[1], "end")
    if start >= end:
        raise FieldError(f"range {value!r} is empty")
    return start, end


def _parse_dead_letters(op: list[object]) -> DeadLetters:
    length_of(op, 4, 4)
    return DeadLetters(where_of(op), tuple(_parse_letter(each) for each in list_of(op[3], "dead letters")))


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


def _parse_drained(op: list[object]) -> Drained:
    length_of(op, 2, 2)
    return Drained(text_of(op[1], "topic"))


_SETTINGS = {"topics", "deliveries_max", "ordering", "dead_letter_topic", "ending"}
QUEUE_DECODERS: dict[str, Callable[[list[object]], MicroOp]] = {
    "schedule": _parse_schedule,
    "cancel": _parse_cancel,
    "share": _parse_share,
    "nonce": _parse_nonce,
    "acquired": _parse_acquired,
    "acknowledge": _parse_acknowledge,
    "dead-letters": _parse_dead_letters,
    "drained": _parse_drained,
    **PUSH_DECODERS,
}
