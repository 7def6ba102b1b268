"""The conditional writes of a delivery of timers (log/delivery.py): to the head, to pages, and to the timers.

No write touches the reader's waiter of the head: the read after the transaction shows who waits (docs/adr/0039).
"""

from collections.abc import Sequence

from penstock_core.log.delivery import Delivery, DeliveryOutcome, HeadRoll
from penstock_core.log.ref import Ref, encode_ref, span
from penstock_core.log.timer import delivered
from penstock_core.storage.head_item import head_key
from penstock_core.storage.head_updates import PUSH_WAITER_TAKEN, TAKE_PUSH_WAITER
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number
from penstock_core.storage.page_item import page_item
from penstock_core.storage.timer_item import settling


def head_write(delivery: Delivery) -> ConditionalUpdate:
    """The update of the head: it takes the refs, or those that the pages leave over."""
    update = f"SET next_offset = next_offset + :span, under_replicated = :none, {TAKE_PUSH_WAITER}, "
    condition = "attribute_exists(next_offset)"
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
