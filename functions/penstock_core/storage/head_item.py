"""The item of a partition's head. Every append writes it.

```
log table   pk "<topic id>#<partition>"   sk "head"
next_offset               N   the offset of the next record; missing while the log is moved
log_start_offset          N   the lowest offset that readers may ask for
tail_base                 N   the offset of the tail's first record
tail                      L   the newest refs, each B (log/ref.py)
rolled_max_timestamp_ms   N   the newest timestamp of all pages, -1 for none
rolled_bytes              N   bytes that ever rolled into pages
settling_offset           N   `Head.noted_log_start`
settling_since_ms         N   `Head.log_start_noted_ms`
under_replicated          N   bitmap of zones that had not confirmed the newest append when it was committed
producers                 M   producer id in base64 (keys.producer_name): its entry B (records/producer_state.py)
o#<producer>              B   its owner, beside `producers` so that older releases pass over it
evictions                 N   how often producers left that map
waiter                    N   `Head.waiter_ms`; missing while no reader waits for an append
push_waiter               N   1 while a subscription waits, else 0; missing in heads of older releases
closed_ms                 N   `Head.closed_ms`; missing while the partition is open
closed_offset             N   `Head.closed_offset`; missing while the partition is open
layout_number             N   `Head.layout`; missing before the first change
jumps                     L   start and end of each of `Head.jumps`, N; missing before the first restore
restore_id                S   `Head.restore`; missing before the first restore
log_id                    S   `Head.log_id`; missing before the first push to a mirror, or of one
mirror                    S   `Head.mirror`; missing in a log that takes appends
promoted_at               N   `Head.promoted_at`; missing before a promotion
moved_at                  N   the next offset of a moved log: no write of any release finds `next_offset`, and raises it
move                      N   `Head.move`; missing while the log is not moved, as `moved_at` is
reopened_move             N   `Head.reopened_move`; missing before a move was given up
reader_changes            N   `Head.reader_changes`; missing before the first
```
Attribute names are written out. A head with a full tail is about 1 KiB, and up to 3 KiB if it knows many producers.

The item of an idempotent producer that has left the head.

```
log table   pk "<topic id>#<partition>"   sk "producer#<producer id, 11 letters of base64>"
state          B   its entry, as in the head (records/producer_state.py)
owner          B   its owner, as in the head; missing for one that an older release has moved out
expires_at_s   N   DynamoDB removes the item some time after it: `PRODUCER_KEPT_MS` after the producer left the head
```
"""

import base64
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import FORMAT_ATTRIBUTE, check_item
from penstock_core.ids import Offset, PartitionKey, parse_partition_key
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_core.log.index import Head, Jump, Waiter
from penstock_core.log.ref import decode_ref, encode_ref
from penstock_core.log.wake_up import PushEvent
from penstock_core.records.producer_state import (
    NO_OWNER,
    ProducerState,
    checked_entry,
    decode_state,
    encode_state,
    entries_equal,
)
from penstock_core.storage import keys
from penstock_core.storage.item import ConditionalPut, Item, number

CLOSED = "closed_ms"
CLOSED_OFFSET = "closed_offset"
LAYOUT = "layout_number"
JUMPS = "jumps"
RESTORE = "restore_id"
LOG_ID = "log_id"
MIRROR = "mirror"
PROMOTED_AT = "promoted_at"
NEXT_OFFSET, MOVED_AT = "next_offset", "moved_at"
MOVE = "move"
REOPENED_MOVE = "reopened_move"
MOVED_FORMAT = 2
READER_CHANGES = "reader_changes"
OWNER_PREFIX = "o#"


@dataclass(frozen=True, slots=True, eq=False)
class _StoredProducers(Mapping[int, ProducerState]):
    """The producers of a head, each decoded when it is looked up: a fetch asks for none, an append for one.

    The entries must be checked: whoever looks one up later no longer expects a damaged one.
    """

    entries: Mapping[str, bytes]  # by the producer's name
    owners: Mapping[str, bytes]  # by the name of the attribute

    def __getitem__(self, producer_id: int) -> ProducerState:
        entry = self.entries.get(keys.producer_name(producer_id))
        if entry is None:
            raise KeyError(producer_id)
        return self._decoded(keys.producer_name(producer_id), entry)

    def __iter__(self) -> Iterator[int]:
        return map(keys.parse_producer_name, self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def items(self) -> ItemsView[int, ProducerState]:
        return {
            keys.parse_producer_name(name): self._decoded(name, entry) for name, entry in self.entries.items()
        }.items()

    def _decoded(self, name: str, entry: bytes) -> ProducerState:
        return decode_state(entry, bytes(self.owners.get(OWNER_PREFIX + name, NO_OWNER)))


def head_key(key: PartitionKey) -> Item:
    """The key of the partition's head."""
    return {"pk": {"S": str(key)}, "sk": {"S": keys.HEAD}}


def head_item(key: PartitionKey, head: Head) -> Item:
    """The whole item. `under_replicated` is 0: an append sets it."""
    waiter = {} if head.waiter_ms is None else {Waiter.READER.value: number(head.waiter_ms)}
    return {
        **head_key(key),
        MOVED_AT if head.move else NEXT_OFFSET: number(head.next_offset),
        "log_start_offset": number(head.log_start_offset),
        "tail_base": number(head.tail_base),
        "tail": {"L": [{"B": encode_ref(ref)} for ref in head.tail]},
        "rolled_max_timestamp_ms": number(head.rolled_max_timestamp_ms),
        "rolled_bytes": number(head.rolled_bytes),
        "settling_offset": number(head.noted_log_start),
        "settling_since_ms": number(head.log_start_noted_ms),
        "under_replicated": number(0),
        "producers": {
            "M": {
                keys.producer_name(producer_id): {"B": encode_state(state)}
                for producer_id, state in head.producers.items()
            }
        },
        "evictions": number(head.evictions),
        Waiter.PUSH.value: number(int(head.has_push_waiter)),
        **waiter,
        **({} if head.closed_ms is None else {CLOSED: number(head.closed_ms)}),
        **({} if head.closed_offset is None else {CLOSED_OFFSET: number(head.closed_offset)}),
        **({LAYOUT: number(head.layout)} if head.layout else {}),
        **({JUMPS: jump_list(head.jumps)} if head.jumps else {}),
        **({RESTORE: {"S": head.restore}} if head.restore else {}),
        **({LOG_ID: {"S": head.log_id}} if head.log_id else {}),
        **({MIRROR: {"S": head.mirror}} if head.mirror else {}),
        **({} if head.promoted_at is None else {PROMOTED_AT: number(head.promoted_at)}),
        **({MOVE: number(head.move), FORMAT_ATTRIBUTE: number(MOVED_FORMAT)} if head.move else {}),
        **({REOPENED_MOVE: number(head.reopened_move)} if head.reopened_move else {}),
        **({READER_CHANGES: number(head.reader_changes)} if head.reader_changes else {}),
        **{owner_name(each): {"B": state.owner} for each, state in head.producers.items() if state.owner},
    }


def parse_head(item: Mapping[str, Any]) -> Head:
    """The inverse of `head_item`. Raises CORRUPT_SEGMENT for a damaged ref or entry."""
    check_item("head", item)
    return Head(
        next_offset=Offset(int(item[MOVED_AT if MOVED_AT in item else NEXT_OFFSET]["N"])),
        log_start_offset=Offset(int(item["log_start_offset"]["N"])),
        tail_base=Offset(int(item["tail_base"]["N"])),
        tail=tuple(decode_ref(element["B"]) for element in item["tail"]["L"]),
        rolled_max_timestamp_ms=int(item["rolled_max_timestamp_ms"]["N"]),
        rolled_bytes=int(item["rolled_bytes"]["N"]),
        noted_log_start=Offset(int(item["settling_offset"]["N"])),
        log_start_noted_ms=int(item["settling_since_ms"]["N"]),
        producers=_StoredProducers(
            entries={name: checked_entry(state["B"]) for name, state in item["producers"]["M"].items()},
            owners={name: value["B"] for name, value in item.items() if name.startswith(OWNER_PREFIX)},
        ),
        evictions=int(item["evictions"]["N"]),
        waiter_ms=int(item[Waiter.READER.value]["N"]) if Waiter.READER.value in item else None,
        has_push_waiter=_has_push_waiter(item),
        closed_ms=int(item[CLOSED]["N"]) if CLOSED in item else None,
        layout=int(item[LAYOUT]["N"]) if LAYOUT in item else 0,
        closed_offset=Offset(int(item[CLOSED_OFFSET]["N"])) if CLOSED_OFFSET in item else None,
        jumps=_parse_jumps(item[JUMPS]["L"]) if JUMPS in item else (),
        restore=item[RESTORE]["S"] if RESTORE in item else "",
        log_id=item[LOG_ID]["S"] if LOG_ID in item else "",
        mirror=item[MIRROR]["S"] if MIRROR in item else "",
        promoted_at=Offset(int(item[PROMOTED_AT]["N"])) if PROMOTED_AT in item else None,
        move=int(item[MOVE]["N"]) if MOVE in item else 0,
        reopened_move=int(item[REOPENED_MOVE]["N"]) if REOPENED_MOVE in item else 0,
        reader_changes=int(item[READER_CHANGES]["N"]) if READER_CHANGES in item else 0,
    )


def parse_streamed_head(image: Mapping[str, Any]) -> tuple[PartitionKey, Head]:
    """The head of an image from the table's stream. Lambda hands it over as JSON, with binary values in base64."""
    tail = [{"B": base64.b64decode(element["B"])} for element in image["tail"]["L"]]
    producers = {name: {"B": base64.b64decode(state["B"])} for name, state in image["producers"]["M"].items()}
    image = {**image, "tail": {"L": tail}, "producers": {"M": producers}}
    image |= {
        name: {"B": base64.b64decode(value["B"])} for name, value in image.items() if name.startswith(OWNER_PREFIX)
    }
    return parse_partition_key(image["pk"]["S"]), parse_head(image)


def jump_list(jumps: Iterable[Jump]) -> Item:
    """The jumps as a list of numbers: the start and the end of each."""
    return {"L": [number(bound) for jump in jumps for bound in (jump.start, jump.end)]}


def owner_name(producer_id: int) -> str:
    """The name of the attribute that has the producer's owner."""
    return OWNER_PREFIX + keys.producer_name(producer_id)


def _parse_jumps(elements: Sequence[Mapping[str, Any]]) -> tuple[Jump, ...]:
    bounds = [Offset(int(each["N"])) for each in elements]
    return tuple(Jump(start=start, end=end) for start, end in zip(bounds[::2], bounds[1::2], strict=True))


def parse_push_event(record: Mapping[str, Any]) -> PushEvent | None:
    """The event of a record of the table's stream, None if it took no push waiter. `record` is its `dynamodb`.

    Raises CORRUPT_SEGMENT if the images are no heads.
    """
    try:
        old, new = record.get("OldImage"), record.get("NewImage")
        if old is None or new is None or not _has_push_waiter(old) or _has_push_waiter(new):
            return None
        return PushEvent(
            key=parse_partition_key(record["Keys"]["pk"]["S"]), next_offset=Offset(int(new["next_offset"]["N"]))
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"the stream told of no head: {record!r:.200}") from error


def streamed_age_ms(record: Mapping[str, Any], now_ms: int) -> float:
    """Milliseconds since the write of a record of the stream, by whole seconds of DynamoDB's clock.

    0 if the record does not tell.
    """
    written_s = record.get("dynamodb", {}).get("ApproximateCreationDateTime")
    return 0.0 if written_s is None else now_ms - 1_000.0 * float(written_s)


def _has_push_waiter(item: Mapping[str, Any]) -> bool:
    return Waiter.PUSH.value in item and int(item[Waiter.PUSH.value]["N"]) != 0


def producer_item_key(key: PartitionKey, producer_id: int) -> Item:
    """The key of the producer on this partition."""
    return {"pk": {"S": str(key)}, "sk": {"S": f"producer#{keys.producer_name(producer_id)}"}}


def producer_item(key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> Item:
    """The whole item. It expires `PRODUCER_KEPT_MS` after the producer left the head."""
    return {
        **producer_item_key(key, producer_id),
        "state": {"B": encode_state(state)},
        **({"owner": {"B": state.owner}} if state.owner else {}),
        "expires_at_s": number((evicted_ms + PRODUCER_KEPT_MS) // 1_000),
    }


def producer_put(key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> ConditionalPut:
    """The put of the item, unless one is there that is newer by (epoch, last sequence), or equal and kept longer."""
    lowest, highest = entries_equal(state)
    item = producer_item(key, producer_id, state, evicted_ms)
    return ConditionalPut(
        item=item,
        condition="attribute_not_exists(pk) OR #state < :lowest "
        "OR (#state BETWEEN :lowest AND :highest AND expires_at_s <= :expires)",
        names={"#state": "state"},
        values={":lowest": {"B": lowest}, ":highest": {"B": highest}, ":expires": item["expires_at_s"]},
    )


def parse_producer(item: Mapping[str, Any]) -> ProducerState:
    """The inverse of `producer_item`. Raises CORRUPT_SEGMENT for an entry of another size."""
    check_item("producer", item)
    return decode_state(item["state"]["B"], item["owner"]["B"] if "owner" in item else NO_OWNER)
