"""The micro-operations of push subscriptions, from and to JSON. See `format`.

| micro-operation | |
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
    where_of,
)
from tests.history.format import Copies, Disturb, Handling, MicroOp, Push, PushOp

_SETTINGS = {
    *("topics", "ordering", "dead_letter_topic", "ending", "start", "copies_to", "lock_ms", "is_complete"),
}


def encode_push_op(op: PushOp) -> list[object]:
    """Encode the micro-operation as JSON values."""
    match op:
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


def _parse_push(op: list[object]) -> Push:
    settings = settings_of(op, _SETTINGS)
    get = settings.get
    return Push(
        topics=tuple(text_of(topic, "topic") for topic in list_of(get("topics"), "topics")),
        is_ordered=choice_of(get("ordering", "partition"), "ordering", "partition", "none") == "partition",
        dead_letter_topic=optional_text_of(get("dead_letter_topic"), "dead_letter_topic"),
        ending=optional_text_of(get("ending"), "ending"),
        is_latest=choice_of(get("start", "earliest"), "start", "earliest", "latest") == "latest",
        copies_to=optional_text_of(get("copies_to"), "copies_to"),
        lock_ms=optional_number_of(get("lock_ms"), "lock_ms"),
        is_complete=is_set(get("is_complete"), "is_complete"),
    )


def _parse_handling(op: list[object]) -> Handling:
    refused = list_of(op[4], "refused") if length_of(op, 4, 5) == 5 else []
    return Handling(where_of(op), records_of(op[3]), tuple(number_of(each, "refused offset") for each in refused))


def _parse_copies(op: list[object]) -> Copies:
    length_of(op, 4, 4)
    return Copies(where_of(op), records_of(op[3]))


def _parse_disturb(op: list[object]) -> Disturb:
    lasts_ms = number_of(op[2], "lasts_ms") if length_of(op, 2, 3) == 3 else 0
    return Disturb(text_of(op[1], "why"), lasts_ms)


PUSH_DECODERS: dict[str, Callable[[list[object]], MicroOp]] = {
    "push": _parse_push,
    "handle": _parse_handling,
    "copies": _parse_copies,
    "disturb": _parse_disturb,
}
