"""The conditional updates of a head, without those of appends. head_item.py has the item.

An update removes list elements in descending order. AWS takes the indexes in the list as it was, and some emulators in
the list as it shrinks: in this order both agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock_core.formats import FORMAT_ATTRIBUTE
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import HELD_LAYOUT, HeadJump, Page, Waiter
from penstock_core.log.ref import encode_ref
from penstock_core.records.producer_state import ProducerState, encode_state
from penstock_core.storage.head_item import (
    CLOSED,
    CLOSED_OFFSET,
    JUMPS,
    LAYOUT,
    LOG_ID,
    MIRROR,
    MOVE,
    MOVED_AT,
    MOVED_FORMAT,
    PROMOTED_AT,
    READER_CHANGES,
    REOPENED_MOVE,
    RESTORE,
    head_key,
    jump_list,
    owner_name,
)
from penstock_core.storage.item import ConditionalUpdate, Item, number
from penstock_core.storage.keys import producer_name

if TYPE_CHECKING:
    from penstock_core.compaction.tail_move import TailMove
    from penstock_core.mirror.push import HeadMove, HeadReopening, LogEnd, MirrorAppend

# that `arming` names
WAITER_ATTRIBUTES = ("pk", "sk", "next_offset", "under_replicated", Waiter.READER.value)
READER_ATTRIBUTES = ("pk", "sk", "under_replicated", READER_CHANGES)  # that `reader_counting` names
# Every update that raises `next_offset` sets this, and no other one does. So the stream's filter finds the update that
# took the push waiter: its old image has 1, and its new one 0.
TAKE_PUSH_WAITER = f"{Waiter.PUSH.value} = :idle"
PUSH_WAITER_TAKEN: Mapping[str, Item] = {":idle": number(0)}
# Appends and transactions ask for it. Deliveries of timers do not: they bring what was accepted before (docs/adr/0046).
IS_OPEN = f"attribute_exists(next_offset) AND attribute_not_exists({CLOSED})"


def arming(key: PartitionKey, seen_next_offset: Offset, now_ms: int) -> ConditionalUpdate:
    """Sets the reader's waiter."""
    return _arming(key, Waiter.READER, seen_next_offset, now_ms)


def push_arming(key: PartitionKey, seen_next_offset: Offset) -> ConditionalUpdate:
    """Sets the push waiter."""
    return _arming(key, Waiter.PUSH, seen_next_offset, 1)


def _arming(key: PartitionKey, waiter: Waiter, seen_next_offset: Offset, value: int) -> ConditionalUpdate:
    """Sets a waiter.

    Clears `under_replicated`, so that this update does not wake the function `replicate`. The stream has carried each
    value of it when an append wrote it.
    """
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET {waiter.value} = :waits, under_replicated = :none",
        condition="next_offset = :seen",
        values={":waits": number(value), ":seen": number(seen_next_offset), ":none": number(0)},
    )


def layout_move(key: PartitionKey, layout: int, closed_ms: int | None) -> ConditionalUpdate:
    """Closes or opens the head. Clears `under_replicated`, as `arming` does."""
    values: Item = {":layout": number(layout), ":none": number(0)}
    update = f"SET {LAYOUT} = :layout, under_replicated = :none"
    if closed_ms is None:
        update += f", {Waiter.PUSH.value} = :waits REMOVE {CLOSED}, {CLOSED_OFFSET}"
        values |= {":waits": number(1)}
    else:
        update += f", {CLOSED} = :closed, {CLOSED_OFFSET} = if_not_exists({CLOSED_OFFSET}, next_offset)"
        values |= {":closed": number(closed_ms)}
    return ConditionalUpdate(
        key=head_key(key),
        update=update,
        condition=f"attribute_exists(next_offset) AND (attribute_not_exists({LAYOUT}) OR {LAYOUT} < :layout)",
        values=values,
    )


def jumping(key: PartitionKey, jump: HeadJump, unconfirmed_zones: int) -> ConditionalUpdate:
    """Lets the head go on behind a jump. Sets `under_replicated`, as an append does."""
    renaming = f", {LOG_ID} = :log" if jump.log_id else ""
    return ConditionalUpdate(
        key=head_key(key),
        update=(
            "SET next_offset = :end, tail = list_append(tail, :refs), under_replicated = :unconfirmed, "
            f"{JUMPS} = list_append(if_not_exists({JUMPS}, :empty), :jumps), {RESTORE} = :restore, {TAKE_PUSH_WAITER}"
            f"{renaming}"
        ),
        condition="next_offset = :seen",
        values={
            ":seen": number(jump.seen_next_offset),
            ":end": number(jump.jumps[-1].end),
            ":refs": {"L": [{"B": encode_ref(ref)} for ref in jump.refs]},
            ":unconfirmed": number(unconfirmed_zones),
            ":empty": {"L": []},
            ":jumps": jump_list(jump.jumps),
            ":restore": {"S": jump.restore},
            **({":log": {"S": jump.log_id}} if jump.log_id else {}),
            **PUSH_WAITER_TAKEN,
        },
    )


def log_naming(key: PartitionKey, log_id: str) -> ConditionalUpdate:
    """Names the log, if it has no name. Clears `under_replicated`, as `arming` does."""
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET {LOG_ID} = :log, under_replicated = :none",
        condition=f"attribute_exists(next_offset) AND attribute_not_exists({LOG_ID})",
        values={":log": {"S": log_id}, ":none": number(0)},
    )


def reader_counting(key: PartitionKey) -> ConditionalUpdate:
    """Tells retention that a reader has a new place. Clears `under_replicated`, as `arming` does."""
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET {READER_CHANGES} = if_not_exists({READER_CHANGES}, :none) + :one, under_replicated = :none",
        condition="attribute_exists(pk)",
        values={":one": number(1), ":none": number(0)},
    )


def passed_raising(key: PartitionKey, offset: Offset, reader_changes: int) -> ConditionalUpdate:
    """Raises the log start past what all readers have passed, unless a reader has got another place since."""
    seen = f"{READER_CHANGES} = :seen" if reader_changes else f"attribute_not_exists({READER_CHANGES})"
    return ConditionalUpdate(
        key=head_key(key),
        update="SET log_start_offset = :offset",
        condition=f"log_start_offset < :offset AND (next_offset >= :offset OR {MOVED_AT} >= :offset) AND {seen}",
        values={":offset": number(offset), **({":seen": number(reader_changes)} if reader_changes else {})},
    )


def mirroring(key: PartitionKey, append: MirrorAppend, unconfirmed_zones: int) -> ConditionalUpdate:
    """Appends a push, if the mirror writes the head, and the log is the same and ends where the push begins.

    The head is closed, so no other append meets it. An empty one takes the name of the log with its first push. A
    mirror of the mirror may have given it another one.
    """
    names, values, sets = {}, {}, ""
    for index, (producer_id, state) in enumerate(append.producers.items()):
        names[f"#p{index}"] = producer_name(producer_id)
        values[f":p{index}"] = {"B": encode_state(state)}
        sets += f", producers.#p{index} = :p{index}"
        if state.owner:
            names[f"#p{index}o"] = owner_name(producer_id)
            values[f":p{index}o"] = {"B": state.owner}
            sets += f", #p{index}o = :p{index}o"
    return ConditionalUpdate(
        key=head_key(key),
        update=(
            "SET next_offset = :end, tail = list_append(tail, :refs), under_replicated = :unconfirmed, "
            f"{LOG_ID} = :log, {TAKE_PUSH_WAITER}{sets} REMOVE {Waiter.READER.value}"
        ),
        condition=f"{MIRROR} = :mirror AND next_offset = :base AND ({LOG_ID} = :log OR next_offset = :zero)",
        values={
            ":mirror": {"S": append.mirror},
            ":log": {"S": append.log_id},
            ":base": number(append.base_offset),
            ":zero": number(0),
            ":end": number(append.base_offset + sum(ref.offset_span for ref in append.refs)),
            ":refs": {"L": [{"B": encode_ref(ref)} for ref in append.refs]},
            ":unconfirmed": number(unconfirmed_zones),
            **PUSH_WAITER_TAKEN,
            **values,
        },
        names=names,
    )


def promoting(
    key: PartitionKey, mirror: str, layout: int, closed_ms: int | None, end: LogEnd | None = None
) -> ConditionalUpdate:
    """Ends the mirror's writes to the head, which follows a layout from now on: open, or closed at `closed_ms`.

    With an `end`, only a head that ends there, and is of that log: an empty one is of any. Nothing sets the mirror's
    attribute again. So it fences pushes for good. Clears `under_replicated`, as `arming` does.
    """
    update = f"SET {LAYOUT} = :layout, {PROMOTED_AT} = next_offset, under_replicated = :none"
    values: Item = {":mirror": {"S": mirror}, ":layout": number(layout), ":none": number(0)}
    removed, condition = MIRROR, f"{MIRROR} = :mirror"
    if end is not None:
        condition += " AND next_offset = :ends" + (f" AND {LOG_ID} = :log" if end.next_offset else "")
        update += f", {LOG_ID} = :log"
        values |= {":ends": number(end.next_offset), ":log": {"S": end.log_id}}
    if closed_ms is None:
        update += f", {Waiter.PUSH.value} = :waits"
        values |= {":waits": number(1)}
        removed += f", {CLOSED}, {CLOSED_OFFSET}"
    else:
        update += f", {CLOSED} = :closed, {CLOSED_OFFSET} = next_offset"
        values |= {":closed": number(closed_ms)}
    return ConditionalUpdate(key=head_key(key), update=f"{update} REMOVE {removed}", condition=condition, values=values)


def moving(key: PartitionKey, move: HeadMove) -> ConditionalUpdate:
    """Ends the log: its next offset gets another name, so every write that raises it is refused, of any release.

    Not for a move that was given up. No reader and no subscription needs to arm the head: nothing comes, and those who
    could not arm would ask all the time. Clears `under_replicated`, as `arming` does.
    """
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET {MOVED_AT} = next_offset, {MOVE} = :move, {FORMAT_ATTRIBUTE} = :format, under_replicated = :none, "
        f"{Waiter.PUSH.value} = :waits, {Waiter.READER.value} = :now, "
        f"{LOG_ID} = if_not_exists({LOG_ID}, :log), {CLOSED} = if_not_exists({CLOSED}, :now), "
        f"{CLOSED_OFFSET} = if_not_exists({CLOSED_OFFSET}, next_offset) REMOVE next_offset",
        condition=f"attribute_exists(next_offset) AND attribute_not_exists({MIRROR}) "
        f"AND (attribute_not_exists({REOPENED_MOVE}) OR {REOPENED_MOVE} < :move)",
        values={
            ":move": number(move.number),
            ":format": number(MOVED_FORMAT),
            ":waits": number(1),
            ":none": number(0),
            ":log": {"S": move.log_id},
            ":now": number(move.now_ms),
        },
    )


def reopening(key: PartitionKey, reopened: HeadReopening) -> ConditionalUpdate:
    """Lets a moved log go on, open or closed at `closed_ms`. Clears `under_replicated`, as `arming` does."""
    sets = f"next_offset = {MOVED_AT}, {REOPENED_MOVE} = :move, {LAYOUT} = :layout, under_replicated = :none"
    values: Item = {":move": number(reopened.number), ":layout": number(reopened.layout), ":none": number(0)}
    removed = f"{MOVED_AT}, {MOVE}, {FORMAT_ATTRIBUTE}"
    if reopened.closed_ms is None:
        removed += f", {CLOSED}, {CLOSED_OFFSET}"
    if reopened.log_id:
        sets += f", {LOG_ID} = :log"
        values |= {":log": {"S": reopened.log_id}}
    return ConditionalUpdate(
        key=head_key(key), update=f"SET {sets} REMOVE {removed}", condition=f"{MOVE} = :move", values=values
    )


def returning(key: PartitionKey, number_of_move: int, mirror: str) -> ConditionalUpdate:
    """Lets pushes of `mirror` alone go on with a log that was moved to where they come from, under its name there."""
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET next_offset = {MOVED_AT}, {REOPENED_MOVE} = :move, {MIRROR} = :mirror, {LAYOUT} = :held, "
        f"under_replicated = :none REMOVE {MOVED_AT}, {MOVE}, {FORMAT_ATTRIBUTE}, {PROMOTED_AT}",
        condition=f"{MOVE} = :move",
        values={
            ":move": number(number_of_move),
            ":mirror": {"S": mirror},
            ":held": number(HELD_LAYOUT),
            ":none": number(0),
        },
    )


def giving_up(key: PartitionKey, reopened: HeadReopening) -> ConditionalUpdate:
    """Keeps a move that was given up from ending a log that it has not ended. Clears `under_replicated`, too."""
    sets = f"{REOPENED_MOVE} = :move, under_replicated = :none"
    values: Item = {":move": number(reopened.number), ":none": number(0)}
    if reopened.log_id:
        sets += f", {LOG_ID} = :log"
        values |= {":log": {"S": reopened.log_id}}
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET {sets}",
        condition="attribute_exists(next_offset) "
        f"AND (attribute_not_exists({REOPENED_MOVE}) OR {REOPENED_MOVE} < :move)",
        values=values,
    )


def tail_shortening(key: PartitionKey, page: Page) -> ConditionalUpdate:
    """Takes the refs of `page` out of the tail (`roll.shortened`)."""
    values: Item = {
        ":base": number(page.base_offset),
        ":end": number(page.end_offset),
        ":newest": number(page.max_timestamp_ms),
        ":bytes": number(page.rolled_bytes),
    }
    values |= {f":r{index}": {"B": encode_ref(ref)} for index, ref in enumerate(page.refs)}
    places = range(len(page.refs))
    removals = ", ".join(f"tail[{index}]" for index in reversed(places))
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET tail_base = :end, rolled_max_timestamp_ms = :newest, rolled_bytes = :bytes REMOVE {removals}",
        condition=" AND ".join(["tail_base = :base", *(f"tail[{index}] = :r{index}" for index in places)]),
        values=values,
    )


def tail_moving(key: PartitionKey, move: TailMove) -> ConditionalUpdate:
    """Exchanges refs of the tail, if it has the old ones still and is shorter than a page.

    Clears `under_replicated`, as `arming` does.
    """
    values: Item = {":base": number(move.tail_base), ":page": number(TAIL_ROLL_REFS), ":none": number(0)}
    values |= {f":old{place}": {"B": encode_ref(ref)} for place, ref in move.old.items()}
    values |= {f":new{place}": {"B": encode_ref(ref)} for place, ref in move.new.items()}
    sets = [*(f"tail[{place}] = :new{place}" for place in move.new), "under_replicated = :none"]
    unchanged = [f"tail[{place}] = :old{place}" for place in move.old]
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET {', '.join(sets)}",
        condition=" AND ".join(["tail_base = :base", "size(tail) < :page", *unchanged]),
        values=values,
    )


def producers_removal(key: PartitionKey, leaving: Mapping[int, ProducerState]) -> ConditionalUpdate:
    """Takes the producers out of the head, if each has the entry that is given."""
    names = {f"#p{index}": producer_name(producer_id) for index, producer_id in enumerate(leaving)}
    states = {f":p{index}": {"B": encode_state(state)} for index, state in enumerate(leaving.values())}
    removals = ", ".join(f"producers.{name}, {name}o" for name in names)
    return ConditionalUpdate(
        key=head_key(key),
        update=f"SET evictions = evictions + :one REMOVE {removals}",
        condition=" AND ".join(f"producers.{name} = {value}" for name, value in zip(names, states, strict=True)),
        values={":one": number(1), **states},
        names=names | {f"#p{index}o": owner_name(producer_id) for index, producer_id in enumerate(leaving)},
    )
