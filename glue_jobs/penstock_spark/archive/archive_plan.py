"""The plan of one commit of an archived topic, fixed before its first file is written, and the plan's encoding.

```
 plan 1 ─ groups ─ files ─ commit 1     plan 2 ─ groups ─ files ─ commit 2     …
 put first, once   each put once        put once: carries the next offsets
```
A plan assigns offsets of partitions to groups. A group's records go into one file for each day of their timestamps. The
file's name consists of the plan, the group and the day. Each object is put only if it does not exist yet.

A plan may be carried out by a first run, by the run after a kill, or by two runs at once. All of them write the same
records under the same names. So each offset is archived once, and the next run finishes the work of a run that died.
Plan n + 1 starts from the next offsets of commit n, and is made only after that commit.

This module reads the index and makes no other call.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance
from penstock_spark.archive.typed_columns import Typing
from penstock_spark.plan.planning import slices_between
from penstock_spark.plan.slices import Slice, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """The offsets `[start_offset, end_offset)` of one partition."""

    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The work of one task. `stored_bytes` sums its refs in the segments."""

    number: int
    spans: tuple[OffsetSpan, ...]
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The content of commit `number`.

    `next_offsets` holds the next offset of every partition after the commit. Retention removed the `expired` spans
    before they could be planned. Each attempt types values by the plan's `typing`, whatever the schema is by then.
    """

    number: int
    topic: str
    topic_id: str
    groups: tuple[Group, ...]
    next_offsets: Mapping[int, int]
    expired: tuple[OffsetSpan, ...] = ()
    typing: Typing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFiles:
    """The progress of a table: its newest commit, and the next offset of each partition after it.

    Number 0: no commit yet.
    """

    number: int = 0
    next_offsets: Mapping[int, int] = field(default_factory=dict)


def make_plan(
    instance: Instance,
    topic: Topic,
    committed: CommittedFiles,
    until: Mapping[int, int],
    *,
    group_bytes: int,
    commit_bytes: int,
) -> Plan | None:
    """The next plan: about `commit_bytes` in groups of `group_bytes`, up to the offsets `until`.

    None if there is nothing.

    Each partition gets an equal share, at least one page of the index. Costs one read for each 100 heads, and a query
    for each 64 pages. Raises OFFSET_OUT_OF_RANGE if a partition ends below its archived offsets, and UNKNOWN_TOPIC if
    the topic is deleted meanwhile.
    """
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_partitions()]
    while True:
        heads = _heads(instance, topic, keys)
        try:
            return _plan(instance, topic, committed, until, heads, group_bytes, commit_bytes)
        except PenstockError as error:
            now = _heads(instance, topic, keys)
            is_moved = any(now[key].log_start_offset > heads[key].log_start_offset for key in keys)
            if error.code is not ErrorCode.CORRUPT_SEGMENT or not is_moved:
                raise  # else retention removed pages during the read: plan again


def high_watermarks(instance: Instance, topic: Topic) -> dict[int, int]:
    """The present end of each partition. One read for each 100 of them."""
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_partitions()]
    return {key.partition: head.high_watermark for key, head in _heads(instance, topic, keys).items()}


def encode_plan(plan: Plan) -> bytes:
    """The plan as JSON. Each span is a list of three numbers."""
    groups = [{"spans": _triples(each.spans), "stored_bytes": each.stored_bytes} for each in plan.groups]
    return json.dumps(
        {
            "number": plan.number,
            "topic": plan.topic,
            "topic_id": plan.topic_id,
            "next_offsets": plan.next_offsets,
            "expired": _triples(plan.expired),
            "groups": groups,
            **({} if plan.typing is None else {"typing": _typing_document(plan.typing)}),
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
        typing=_typing(found["typing"]) if "typing" in found else None,
    )


def _typing_document(typing: Typing) -> dict[str, Any]:
    """An earlier release reads it, if there are no chosen columns."""
    return {name: value for name, value in asdict(typing).items() if name != "partition_by" or value}


def _typing(found: Mapping[str, Any]) -> Typing:
    return Typing(**{**found, "partition_by": tuple(found.get("partition_by", ()))})  # an earlier release had days only


def offsets_of_json(found: Mapping[str, int]) -> dict[int, int]:
    """Offsets by partition from a JSON object, whose names are texts."""
    return {int(partition): offset for partition, offset in found.items()}


def _plan(
    instance: Instance,
    topic: Topic,
    committed: CommittedFiles,
    until: Mapping[int, int],
    heads: Mapping[PartitionKey, Head],
    group_bytes: int,
    commit_bytes: int,
) -> Plan | None:
    expired: list[OffsetSpan] = []
    starts: dict[int, int] = {}
    for key, head in heads.items():
        # A partition that the table's commits do not name was added after them: it begins at 0.
        first = committed.next_offsets.get(key.partition, 0 if committed.number else head.log_start_offset)
        if first > head.high_watermark:
            raise PenstockError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {key.partition} of topic {topic.name!r} ends at {head.high_watermark}, and is archived up "
                f"to {first}: its index was restored to an older state; archive it into another table (--output)",
            )
        # The table keeps what a restore took from the log: offsets within a jump are never given again.
        starts[key.partition] = head.next_readable(max(first, head.log_start_offset))
        if first < head.log_start_offset:
            expired.append(_span(key.partition, first, head.log_start_offset))
    wanted = [(key, head) for key, head in heads.items() if starts[key.partition] < until.get(key.partition, 0)]
    share = max(1, commit_bytes // max(1, len(wanted)))
    found = instance.executor.map(
        lambda pair: _first_slices(instance, topic, *pair, starts[pair[0].partition], until[pair[0].partition], share),
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
    instance: Instance, topic: Topic, key: PartitionKey, head: Head, start: int, end: int, share: int
) -> list[Slice]:
    taken: list[Slice] = []
    taken_bytes = 0
    for each in slices_between(instance, topic.name, key, head, start, end):
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


def _heads(instance: Instance, topic: Topic, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
    """The heads, in the order of the partitions. Raises UNKNOWN_TOPIC if one is missing."""
    heads = instance.stores.log.heads(keys)
    if len(heads) < len(keys):
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} is being deleted")
    return {key: heads[key] for key in keys}


def _span(partition: int, start_offset: int, end_offset: int) -> OffsetSpan:
    return OffsetSpan(partition=Partition(partition), start_offset=start_offset, end_offset=end_offset)


def _triples(spans: Sequence[OffsetSpan]) -> list[list[int]]:
    return [[each.partition, each.start_offset, each.end_offset] for each in spans]


def _spans(triples: Sequence[Sequence[int]]) -> tuple[OffsetSpan, ...]:
    return tuple(_span(*each) for each in triples)
