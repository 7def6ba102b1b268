"""The items of delayed records: timers, the index of due minutes, and the switch of their triggers (docs/adr/0039).

```
log table   pk "<topic id>#<partition>#timers#<shard>"   sk "timer#<due ms, 15 digits>#<id, 32 hex>"
ref            B   where the records are (log/ref.py)
crc            N   CRC-32C of their batches
announced      BOOL  true if the writer sends the message that starts the delivery; else missing
settled_ms     N   when the timer was delivered or cancelled; missing while it waits
outcome        S   "delivered" or "cancelled"; missing while it waits
expires_at_s   N   DynamoDB removes the mark some time after it; missing while it waits
format_version N   2: a copy of a timer that waits at the source of a mirror; missing in others. A release that does not
                   know copies refuses it, and so delivers none into a mirrored head

log table   pk "<topic id>#<partition>#told"   sk "told#<segment id, 32 hex>#<position>"
due_ms         N   of the timer that the mirror was told of, and its id: a push of its ref names it
timer_id       S
expires_at_s   N   DynamoDB removes it some time after it

log table   pk "#timers#<minute % 16, 2 digits>"   sk "<minute since 1970, 10 digits>#<topic id>#<partition>"
timers         N   how many timers writers have reserved room for

log table   pk "#timers"   sk "switch"
since_ms       N   when the triggers of timers were switched on
```

The conditional writes of a delivery of timers (log/delivery.py): to the head, to pages, and to the timers.

No write touches the reader's waiter of the head: the read after the transaction shows who waits (docs/adr/0039).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock_core.formats import FORMAT_ATTRIBUTE, check_item
from penstock_core.ids import PartitionKey, TimerId, parse_partition_key
from penstock_core.limits import MIRROR_TOLD_KEPT_MS, TIMER_INDEX_SHARDS
from penstock_core.log.delivery import Delivery, DeliveryOutcome, HeadRoll
from penstock_core.log.ref import Ref, decode_ref, encode_ref, span
from penstock_core.log.timer import DueMinute, Timer, TimerPlace, TimerState, delivered
from penstock_core.storage.head_item import MIRROR, head_key
from penstock_core.storage.head_updates import PUSH_WAITER_TAKEN, TAKE_PUSH_WAITER
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number
from penstock_core.storage.keys import TIMERS, TOLD
from penstock_core.storage.page_item import page_item

TIMER_PREFIX = "timer#"
_COPY = 2
_IS_WAITING = "attribute_exists(crc) AND attribute_not_exists(settled_ms)"


def timer_sort_key(due_ms: int, suffix: str = "") -> str:
    """The sort key of a timer with that due time; without `suffix`, one before all of them."""
    return f"{TIMER_PREFIX}{due_ms:015d}#{suffix}"


def timer_shard_key(key: PartitionKey, shard: int) -> str:
    """The partition key of a shard of the partition's timers."""
    return f"{key}{TIMERS}#{shard}"


def timer_key(key: PartitionKey, place: TimerPlace) -> Item:
    """The key of one timer."""
    return {
        "pk": {"S": timer_shard_key(key, place.shard)},
        "sk": {"S": timer_sort_key(place.due_ms, place.timer_id.hex())},
    }


def timer_item(timer: Timer) -> Item:
    """The whole item."""
    settled: Item = {}
    if timer.settled_ms is not None and timer.expires_ms is not None:
        settled = {
            "settled_ms": number(timer.settled_ms),
            "outcome": {"S": timer.state.value},
            "expires_at_s": number(timer.expires_ms // 1_000),
        }
    return {
        **timer_key(timer.key, timer.place),
        "ref": {"B": encode_ref(timer.ref)},
        "crc": number(timer.crc),
        **({"announced": {"BOOL": True}} if timer.is_announced else {}),
        **({FORMAT_ATTRIBUTE: number(_COPY)} if timer.is_copy else {}),
        **settled,
    }


def parse_timer(item: Mapping[str, Any]) -> Timer:
    """The inverse of `timer_item`. Raises CORRUPT_SEGMENT for a damaged ref."""
    check_item("timer", item)
    _, due_ms, timer_id = item["sk"]["S"].split("#")
    return Timer(
        key=parse_partition_key(item["pk"]["S"].partition(TIMERS)[0]),
        place=TimerPlace(int(due_ms), TimerId(bytes.fromhex(timer_id))),
        ref=decode_ref(item["ref"]["B"]),
        crc=int(item["crc"]["N"]),
        is_announced="announced" in item,
        is_copy=FORMAT_ATTRIBUTE in item,
        state=TimerState(item["outcome"]["S"]) if "outcome" in item else TimerState.WAITING,
        settled_ms=int(item["settled_ms"]["N"]) if "settled_ms" in item else None,
    )


def timer_put(timer: Timer) -> ConditionalPut:
    """The put of a new timer, if its key is free."""
    return ConditionalPut(item=timer_item(timer), condition="attribute_not_exists(pk)")


def settling(mark: Timer) -> ConditionalUpdate:
    """The update that makes a timer `mark`, if it waits."""
    if mark.settled_ms is None or mark.expires_ms is None:
        raise ValueError("a timer that waits is no mark")
    return ConditionalUpdate(
        key=timer_key(mark.key, mark.place),
        update="SET settled_ms = :settled, outcome = :outcome, expires_at_s = :expires",
        condition=_IS_WAITING,
        values={
            ":settled": number(mark.settled_ms),
            ":outcome": {"S": mark.state.value},
            ":expires": number(mark.expires_ms // 1_000),
        },
    )


def told_key(key: PartitionKey, ref: Ref) -> Item:
    """The key of the note that a mirror was told of the timer with this ref. Merges give its records another ref."""
    return {"pk": {"S": f"{key}{TOLD}"}, "sk": {"S": f"told#{ref.segment_id.hex()}#{ref.position}"}}


def told_item(timer: Timer) -> Item:
    """The note. It outlives the time until a push of the delivered ref."""
    return {
        **told_key(timer.key, timer.ref),
        "due_ms": number(timer.place.due_ms),
        "timer_id": {"S": timer.place.timer_id.hex()},
        "expires_at_s": number((timer.place.due_ms + MIRROR_TOLD_KEPT_MS) // 1_000),
    }


def parse_told(item: Mapping[str, Any]) -> TimerPlace:
    """The place of the timer that a note tells."""
    check_item("told_timer", item)
    return TimerPlace(int(item["due_ms"]["N"]), TimerId(bytes.fromhex(item["timer_id"]["S"])))


def due_minute_shards() -> tuple[str, ...]:
    """The partition keys of the index of due minutes."""
    return tuple(map(_shard, range(TIMER_INDEX_SHARDS)))


def minute_sort_key(minute: int, suffix: str = "") -> str:
    """The sort key of a minute; without `suffix`, one before all of its partitions."""
    return f"{minute:010d}#{suffix}"


def due_minute_key(each: DueMinute) -> Item:
    """The key of the partition's item of that minute."""
    return {
        "pk": {"S": _shard(each.minute % TIMER_INDEX_SHARDS)},
        "sk": {"S": minute_sort_key(each.minute, str(each.key))},
    }


def parse_due_minute(item: Mapping[str, Any]) -> DueMinute:
    """The minute and the partition of the item."""
    check_item("due_minute", item)
    minute, _, key = item["sk"]["S"].partition("#")
    return DueMinute(int(minute), parse_partition_key(key))


def switch_key() -> Item:
    """The key of the switch."""
    return {"pk": {"S": TIMERS}, "sk": {"S": "switch"}}


def switch_item(since_ms: int) -> Item:
    """The item that says that triggers are switched on."""
    return {**switch_key(), "since_ms": number(since_ms)}


def parse_switch(item: Mapping[str, Any]) -> int:
    """When the triggers were switched on."""
    check_item("timers_switch", item)
    return int(item["since_ms"]["N"])


def _shard(shard: int) -> str:
    return f"{TIMERS}#{shard:02d}"


def head_write(delivery: Delivery) -> ConditionalUpdate:
    """The update of the head: it takes the refs, or those that the pages leave over."""
    update = f"SET next_offset = next_offset + :span, under_replicated = :none, {TAKE_PUSH_WAITER}, "
    condition = f"attribute_exists(next_offset) AND attribute_not_exists({MIRROR})"
    values: Item = {":span": number(span(delivery.refs)), ":none": number(0), **PUSH_WAITER_TAKEN}
    if delivery.roll is None:
        update += "tail = list_append(tail, :refs)"
        values |= {":refs": _list(delivery.refs)}
    else:
        update += "tail = :after, tail_base = :end, rolled_max_timestamp_ms = :newest, rolled_bytes = :bytes"
        condition += " AND tail_base = :base AND tail = :before"
        values |= _roll_values(delivery.roll)
    return ConditionalUpdate(key=head_key(delivery.key), update=update, condition=condition, values=values)


def page_writes(delivery: Delivery) -> list[ConditionalPut]:
    """The puts of the pages. Each needs its key free: a mark of a merge, or a page that a roll has put, refuses it."""
    pages = () if delivery.roll is None else delivery.roll.pages
    return [ConditionalPut(item=page_item(delivery.key, page), condition="attribute_not_exists(pk)") for page in pages]


def timer_writes(delivery: Delivery) -> list[ConditionalUpdate]:
    """The updates that mark the timers delivered, if they wait."""
    return [settling(delivered(timer, delivery.now_ms)) for timer in delivery.timers]


def refused_outcome(delivery: Delivery, refused: Sequence[bool]) -> DeliveryOutcome | None:
    """The outcome of a transaction that was cancelled, by which of its actions were refused; None if there is no head.

    `refused` is in the order head, pages, timers. Timers count first: a repeat after a lost answer finds them settled.
    """
    if any(refused[-len(delivery.timers) :]):
        return DeliveryOutcome.SETTLED
    return DeliveryOutcome.MOVED if delivery.roll is not None else None


def _roll_values(roll: HeadRoll) -> Item:
    return {
        ":base": number(roll.before.tail_base),
        ":before": _list(roll.before.tail),
        ":after": _list(roll.after.tail),
        ":end": number(roll.after.tail_base),
        ":newest": number(roll.after.rolled_max_timestamp_ms),
        ":bytes": number(roll.after.rolled_bytes),
    }


def _list(refs: Sequence[Ref]) -> Item:
    return {"L": [{"B": encode_ref(ref)} for ref in refs]}
