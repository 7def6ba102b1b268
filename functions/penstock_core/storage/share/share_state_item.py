"""The item of a share group's state in one partition, and its updates as UpdateItem.

```
groups table   pk "share#<share group id>#<topic id>#<partition>"   sk "state"
generation   N   rises with each reset
position     N   the first fresh offset
open         N   records in locks and waits
bases        M   lock id -> N, the offset that the lock's records are relative to
locks        M   lock id -> B (share/share_codec.py)
waits        M   first offset -> B
expired      N   records that were finished because their time was over; missing while there is none
waiter       N   since when, in ms, a consumer waits for records that come back; missing while none does
reasons      L   B each (share/reasons.py), the oldest first; missing until a release tells one
```
A partition has one item for each share group, and each item has a partition key of its own: a group with many
partitions is not one hot key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import LockId, Offset, Partition, ShareGroupId, TopicId
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.reasons import Reason
from penstock_core.share.share_codec import (
    decode_lock,
    decode_reason,
    decode_wait,
    encode_lock,
    encode_reason,
    encode_wait,
)
from penstock_core.share.share_state import AT_POSITION, Lock, ShareKey, ShareState, Wait
from penstock_core.storage.item import ConditionalUpdate, Item, number
from penstock_core.storage.keys import SHARE_PREFIX, SHARE_STATE

_NAMES = {"#p": "position", "#o": "open", "#b": "bases", "#l": "locks", "#w": "waits", "#r": "reasons"}


def share_item_key(key: ShareKey) -> Item:
    """The key of the share item."""
    return {"pk": {"S": f"{SHARE_PREFIX}{key}"}, "sk": {"S": SHARE_STATE}}


def parse_share_key(item: Mapping[str, Any]) -> ShareKey:
    """The inverse of `share_item_key`. Raises ValueError."""
    group, topic_id, partition = item["pk"]["S"].removeprefix(SHARE_PREFIX).split("#")
    return ShareKey(ShareGroupId(group), TopicId(topic_id), Partition(int(partition)))


def share_item(key: ShareKey, state: ShareState) -> Item:
    """The whole item."""
    item = {
        **share_item_key(key),
        "generation": number(state.generation),
        "position": number(state.position),
        "open": number(state.open),
        "bases": {"M": {name: number(lock.base) for name, lock in state.locks.items()}},
        "locks": {"M": {name: {"B": encode_lock(lock)} for name, lock in state.locks.items()}},
        "waits": {"M": {str(first): {"B": encode_wait(wait)} for first, wait in state.waits.items()}},
    }
    if state.reasons:
        item["reasons"] = _reasons(state.reasons)
    item |= {"expired": number(state.expired)} if state.expired else {}
    return item if state.waiter_ms is None else item | {"waiter": number(state.waiter_ms)}


def parse_share(item: Mapping[str, Any]) -> ShareState:
    """The inverse of `share_item`. Raises UNSUPPORTED_FORMAT."""
    check_item("share_state", item)
    bases = {LockId(name): Offset(int(base["N"])) for name, base in item["bases"]["M"].items()}
    return ShareState(
        generation=int(item["generation"]["N"]),
        position=Offset(int(item["position"]["N"])),
        open=int(item["open"]["N"]),
        locks={name: decode_lock(base, item["locks"]["M"][name]["B"]) for name, base in bases.items()},
        waits={
            (first := Offset(int(text))): decode_wait(first, wait["B"]) for text, wait in item["waits"]["M"].items()
        },
        waiter_ms=int(item["waiter"]["N"]) if "waiter" in item else None,
        reasons=tuple(decode_reason(each["B"]) for each in item["reasons"]["L"]) if "reasons" in item else (),
        expired=int(item["expired"]["N"]) if "expired" in item else 0,
    )


def share_update(key: ShareKey, update: ShareUpdate) -> ConditionalUpdate:
    """The update as one UpdateItem. `share_update.apply` says what it does; a contract test holds the two together."""
    return _Expression(update).conditional(key)


def reset_update(key: ShareKey, seen: ShareState, position: Offset) -> ConditionalUpdate:
    """Begin a new generation at `position`, without entries, on condition that the generation is the seen one.

    A waiter stays: its consumer looks again after its time.
    """
    # Three values, because MiniStack would make one map of the three: what is added to one would be in all.
    empty: Item = {each: {"M": {}} for each in (":bases", ":locks", ":waits")}
    return ConditionalUpdate(
        key=share_item_key(key),
        update="SET generation = :next, #p = :position, #o = :none, #b = :bases, #l = :locks, #w = :waits REMOVE #r",
        condition="generation = :seen",
        values={
            ":seen": number(seen.generation),
            ":next": number(seen.generation + 1),
            ":position": number(position),
            ":none": number(0),
            **empty,
        },
        names=_NAMES,
    )


class _Expression:
    """The parts of an UpdateItem, and the short names of what they name."""

    def __init__(self, update: ShareUpdate) -> None:
        self._update = update
        self._names: dict[str, str] = {}
        self._values: Item = {}
        self._sets: list[str] = []
        self._removes: list[str] = []
        self._adds: list[str] = []
        self._conditions = [f"generation = {self._value(number(update.generation))}"]

    def conditional(self, key: ShareKey) -> ConditionalUpdate:
        self._count()
        if self._update.expired:
            self._adds.append(f"expired {self._value(number(self._update.expired))}")
        for name in _both(self._update.expected_locks, self._update.locks):
            self._lock(name)
        for first in _both(self._update.expected_waits, self._update.waits):
            self._wait(first)
        expressions = [("SET", self._sets), ("REMOVE", self._removes), ("ADD", self._adds)]
        return ConditionalUpdate(
            key=share_item_key(key),
            update=" ".join(f"{verb} {', '.join(parts)}" for verb, parts in expressions if parts),
            condition=" AND ".join(self._conditions),
            values=self._values,
            names=self._names,
        )

    def _count(self) -> None:
        update = self._update
        if update.position_between is not None:
            low, high = update.position_between
            position = self._attribute("#p")
            if low == high:
                self._conditions.append(f"{position} = {self._value(number(low))}")
            else:
                between = f"{self._value(number(low))} AND {self._value(number(high))}"
                self._conditions.append(f"{position} BETWEEN {between}")
        if update.open_max is not None:
            self._conditions.append(f"{self._attribute('#o')} <= {self._value(number(update.open_max))}")
        if update.locks_max is not None:
            self._conditions.append(f"size({self._attribute('#l')}) <= {self._value(number(update.locks_max))}")
        if update.waits_max is not None:
            self._conditions.append(f"size({self._attribute('#w')}) <= {self._value(number(update.waits_max))}")
        for name, added in (("#p", update.advance), ("#o", update.open_delta)):
            if added:
                attribute = self._attribute(name)
                self._sets.append(f"{attribute} = {attribute} + {self._value(number(added))}")
        if update.arms_ms is not None:
            self._sets.append(f"waiter = {self._value(number(update.arms_ms))}")
        elif update.takes_waiter:
            self._removes.append("waiter")
        self._reasons()

    def _reasons(self) -> None:
        """Append reasons without a read, or write the list anew if it is as long as it was read."""
        update = self._update
        if not update.adds_reasons and update.sets_reasons is None:
            return
        name, count = self._attribute("#r"), self._value(number(update.reasons_count))
        if update.sets_reasons is not None:
            self._conditions.append(f"size({name}) = {count}")
            self._sets.append(f"{name} = {self._value(_reasons(update.sets_reasons))}")
            return
        self._conditions.append(f"(attribute_not_exists({name}) OR size({name}) <= {count})")
        empty, added = self._value({"L": []}), self._value(_reasons(update.adds_reasons))
        self._sets.append(f"{name} = list_append(if_not_exists({name}, {empty}), {added})")

    def _lock(self, name: LockId) -> None:
        short = f"#n{len(self._names)}"
        self._names[short] = name
        base, lock = f"{self._attribute('#b')}.{short}", f"{self._attribute('#l')}.{short}"
        if name in self._update.expected_locks:
            expected = self._update.expected_locks[name]
            if expected is None:
                self._conditions.append(f"attribute_not_exists({lock})")
            else:
                self._conditions.append(f"{base} = {self._value(number(expected.base))}")
                self._conditions.append(f"{lock} = {self._value({'B': encode_lock(expected)})}")
        if name in self._update.locks:
            self._change_lock(base, lock, self._update.locks[name])

    def _change_lock(self, base: str, lock: str, changed: Lock | None) -> None:
        if changed is None:
            self._removes += (base, lock)
            return
        at = self._attribute("#p") if changed.base == AT_POSITION else self._value(number(changed.base))
        self._sets.append(f"{base} = {at}")
        self._sets.append(f"{lock} = {self._value({'B': encode_lock(changed)})}")

    def _wait(self, first: Offset) -> None:
        short = f"#n{len(self._names)}"
        self._names[short] = str(first)
        path = f"{self._attribute('#w')}.{short}"
        if first in self._update.expected_waits:
            expected = self._update.expected_waits[first]
            self._conditions.append(
                f"attribute_not_exists({path})" if expected is None else f"{path} = {self._encoded(expected)}"
            )
        if first in self._update.waits:
            changed = self._update.waits[first]
            if changed is None:
                self._removes.append(path)
            else:
                self._sets.append(f"{path} = {self._encoded(changed)}")

    def _encoded(self, wait: Wait) -> str:
        return self._value({"B": encode_wait(wait)})

    def _attribute(self, short: str) -> str:
        self._names[short] = _NAMES[short]
        return short

    def _value(self, value: Mapping[str, Any]) -> str:
        name = f":v{len(self._values)}"
        self._values[name] = value
        return name


def _reasons(reasons: Sequence[Reason]) -> Item:
    return {"L": [{"B": encode_reason(each)} for each in reasons]}


def _both(one: Iterable[Any], other: Iterable[Any]) -> Iterable[Any]:
    return dict.fromkeys((*one, *other))
