"""What one commit of an archived topic holds, fixed before any of it is written. With its bytes; makes no call but to
the index.

```
 plan 1 ─ groups ─ files ─ commit 1     plan 2 ─ groups ─ files ─ commit 2     …
 put first, once   each put once        put once: carries the next offsets
```
A plan says which offsets of which partitions go into which group; a group's records go into one file for each day of
their timestamps, whose name is made of the plan, the group and the day. All of this is put only if it is not there yet.
So whoever carries out a plan, a first run, the one after a kill, two at once, writes the same records under the same
names: each offset is archived once, and a run that died is finished by the next. Plan n + 1 is made of the next offsets
of commit n, and only then.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.topic import Topic
from penstock_spark.planning import slices_between
from penstock_spark.slices import Slice, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """The offsets `[start_offset, end_offset)` of one partition."""

    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one task archives; `stored_bytes` are its segments'."""

    number: int
    spans: tuple[OffsetSpan, ...]
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What commit `number` holds. `next_offsets` are of all partitions, as they are after it; `expired` was there to be
    archived once, and was removed before it was planned."""

    number: int
    topic: str
    topic_id: str
    groups: tuple[Group, ...]
    next_offsets: Mapping[int, int]
    expired: tuple[OffsetSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """How far a table is: its newest commit, and the next offset of each partition then. Number 0: there is none."""

    number: int = 0
    next_offsets: Mapping[int, int] = field(default_factory=dict)


def make_plan(
    broker: Broker,
    topic: Topic,
    committed: Committed,
    until: Mapping[int, int],
    *,
    group_bytes: int,
    commit_bytes: int,
) -> Plan | None:
    """What comes next, up to the offsets `until`, of about `commit_bytes` in groups of `group_bytes`; None if nothing.

    Each partition gets an equal share, of one page of the index at least. One read for 100 heads, and a query for each
    64 pages that are taken. Raises OFFSET_OUT_OF_RANGE where a partition ends before what is archived of it,
    UNKNOWN_TOPIC if the topic is deleted meanwhile.
    """
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_partitions()]
    while True:
        heads = _heads(broker, topic, keys)
        try:
            return _plan(broker, topic, committed, until, heads, group_bytes, commit_bytes)
        except PenstockError as error:
            now = _heads(broker, topic, keys)
            is_moved = any(now[key].log_start_offset > heads[key].log_start_offset for key in keys)
            if error.code is not ErrorCode.CORRUPT_SEGMENT or not is_moved:
                raise  # else retention has removed pages that were being read


def high_watermarks(broker: Broker, topic: Topic) -> dict[int, int]:
    """Where each partition ends now. One read for 100 of them."""
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_partitions()]
    return {key.partition: head.high_watermark for key, head in _heads(broker, topic, keys).items()}


def encode_plan(plan: Plan) -> bytes:
    """JSON, with spans as lists of three numbers."""
    groups = [{"spans": _triples(each.spans), "stored_bytes": each.stored_bytes} for each in plan.groups]
    return json.dumps(
        {
            "number": plan.number,
            "topic": plan.topic,
            "topic_id": plan.topic_id,
            "next_offsets": plan.next_offsets,
            "expired": _triples(plan.expired),
            "groups": groups,
        }
    ).encode()


def decode_plan(data: bytes) -> Plan:
    """The inverse of `encode_plan`."""
    found: dict[str, Any] = json.loads(data)
    return Plan(
        number=found["number"],
        topic=found["topic"],
        topic_id=found["topic_id"],
        groups=tuple(
            Group(number=number, spans=_spans(each["spans"]), stored_bytes=each["stored_bytes"])
            for number, each in enumerate(found["groups"])
        ),
        next_offsets=offsets_of_json(found["next_offsets"]),
        expired=_spans(found["expired"]),
    )


def offsets_of_json(found: Mapping[str, int]) -> dict[int, int]:
    """Offsets by partition: JSON has only texts for names."""
    return {int(partition): offset for partition, offset in found.items()}


def _plan(
    broker: Broker,
    topic: Topic,
    committed: Committed,
    until: Mapping[int, int],
    heads: Mapping[PartitionKey, Head],
    group_bytes: int,
    commit_bytes: int,
) -> Plan | None:
    expired: list[OffsetSpan] = []
    starts: dict[int, int] = {}
    for key, head in heads.items():
        # A partition of a table with commits that they do not name was added since: it begins at 0.
        first = committed.next_offsets.get(key.partition, 0 if committed.number else head.log_start_offset)
        if first > head.high_watermark:
            raise PenstockError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {key.partition} of topic {topic.name!r} ends at {head.high_watermark}, and is archived up "
                f"to {first}: its index was set back; archive it into another table (--output)",
            )
        starts[key.partition] = max(first, head.log_start_offset)
        if first < head.log_start_offset:
            expired.append(_span(key.partition, first, head.log_start_offset))
    wanted = [(key, head) for key, head in heads.items() if starts[key.partition] < until.get(key.partition, 0)]
    share = max(1, commit_bytes // max(1, len(wanted)))
    found = broker.parallel.map(
        lambda pair: _first_slices(broker, topic, *pair, starts[pair[0].partition], until[pair[0].partition], share),
        wanted,
    )
    slices: list[Slice] = []
    for result in found:
        if isinstance(result, PenstockError):
            raise result
        slices += result
    if not slices and not expired:
        return None
    return Plan(
        number=committed.number + 1,
        topic=topic.name,
        topic_id=topic.topic_id,
        groups=tuple(_group(number, each) for number, each in enumerate(pack(slices, group_bytes))),
        next_offsets=starts | {each.key.partition: int(each.end_offset) for each in slices},
        expired=tuple(expired),
    )


def _first_slices(
    broker: Broker, topic: Topic, key: PartitionKey, head: Head, start: int, end: int, share: int
) -> list[Slice]:
    taken: list[Slice] = []
    taken_bytes = 0
    for each in slices_between(broker, topic.name, key, head, start, end):
        if taken_bytes >= share:
            break
        taken.append(each)
        taken_bytes += sum(located.ref.length for located in each.located())
    return taken


def _group(number: int, slices: Sequence[Slice]) -> Group:
    return Group(
        number=number,
        spans=tuple(_span(each.key.partition, each.start_offset, each.end_offset) for each in slices),
        stored_bytes=sum(located.ref.length for each in slices for located in each.located()),
    )


def _heads(broker: Broker, topic: Topic, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
    """In the order of the partitions."""
    heads = broker.log.heads(keys)
    if len(heads) < len(keys):
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} is being deleted")
    return {key: heads[key] for key in keys}


def _span(partition: int, start_offset: int, end_offset: int) -> OffsetSpan:
    return OffsetSpan(partition=Partition(partition), start_offset=start_offset, end_offset=end_offset)


def _triples(spans: Sequence[OffsetSpan]) -> list[list[int]]:
    return [[each.partition, each.start_offset, each.end_offset] for each in spans]


def _spans(triples: Sequence[Sequence[int]]) -> tuple[OffsetSpan, ...]:
    return tuple(_span(*each) for each in triples)
