"""The format of a history: JSON lines, one event or one completed operation per line, in order of `time_ns`.

```json
{"process": "p1", "id": 7, "type": "invoke", "f": "send", "time_ns": 10, "ops": [["send", "orders", 0, "v1"]]}
{"process": "p1", "id": 7, "type": "ok", "f": "send", "time_ns": 20, "ops": [["send", "orders", 0, "v1", 41]]}
{"process": "c1", "type": "ok", "f": "poll", "start_ns": 9, "time_ns": 30, "ops": [["poll", "orders", 0, [[41, "v1"]]]]}
```

- `process`: a string; one sequential client. A client that crashes comes back under a new name.
- `id`: an integer that pairs an invoke with its completion; without it a process has one operation open at a time.
- `type`: `invoke`; `ok` = done; `fail` = certainly without effect; `info` = maybe, as is an invoke never completed.
- `f`: `send`, `poll`, `commit`, `committed`, `reset`, `assign`, `subscribe`, `seek`, `truncate`, or `txn` (sends, polls
  and commits at once).
- `time_ns`: of the event, from one monotonic clock (or a simulated one), never falling from line to line.
- `start_ns`: on a completion that has no invoke line, when it began; its absence means at `time_ns`.
- `wall_ms`: optional, for people; never judged.
- `ops`: the micro-operations in order. A completion without them has those of its invoke. If an invoke names sends, its
  completion must name the same. All sends of a `send` to one partition are one append; a `txn` is one transaction.
- `acks` (`quorum` if absent), `attempts` (how often the client sent it; absent: 1, or for a maybe, unknown).
- `group`: of commits, and of what is committed; on a `poll` and an `assign` of a process that shares it.

| micro-operation | |
|---|---|
| `["send", topic, partition, value]` or `[…, offset]` | the offset is null or absent if unknown |
| `["send", …, offset, [topic, partition, offset]]` | and the record that it was made from |
| `["send", …, offset, [topic, partition, offset, name]]` | where several are made from one |
| `["poll", topic, partition, [[offset, value], …]]` | one for each partition asked for, empty ones too |
| `["poll", …, end_offset]` | and the end of the log, learned since the operation began; null: unknown |
| `["poll", …, end_offset, ending]` | of a reader with a filter: it gets only the records whose value ends so |
| `["commit", topic, partition, offset]` | of the operation's `group` |
| `["commit", topic, partition, offset, lease_epoch]` | by the member that owns the lease |
| `["reset", topic, partition, offset]` | an operator sets what the group has committed; null: deletes it |
| `["committed", topic, partition, offset]` | the group's committed offset, as a client read it; null: nothing |
| `["assign", [[topic, partition], …]]` | the whole assignment from now on; a partition that stays keeps its position |
| `["assign", [[topic, partition, position], …]]` | starts at the position, or wherever it may be if that is null |
| `["subscribe", [topic, …]]` | the process may go on anywhere |
| `["seek", topic, partition, position]` | null: wherever the client chose |
| `["truncate", topic, partition, before_offset]` | records below may be gone from the moment of the invoke |

A value is the identity of a record, a string or an integer, never sent to a partition for two different records.
"""

from dataclasses import dataclass
from enum import StrEnum

TopicPartition = tuple[str, int]
Source = tuple[str, int, int, str]
Value = str | int


class MalformedHistoryError(ValueError):
    """A line does not follow the format. `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class Outcome(StrEnum):
    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    MAYBE = "info"


class Function(StrEnum):
    SEND = "send"
    POLL = "poll"
    TXN = "txn"
    COMMIT = "commit"
    COMMITTED = "committed"
    RESET = "reset"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    SEEK = "seek"
    TRUNCATE = "truncate"


class Acks(StrEnum):
    NONE = "none"
    ONE = "one"
    QUORUM = "quorum"
    ALL = "all"


@dataclass(slots=True)  # frozen would take three times as long to make, as for all that a history has millions of
class Send:
    where: TopicPartition
    value: Value
    offset: int | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    where: TopicPartition
    records: tuple[tuple[int, Value], ...]
    end_offset: int | None = None
    ending: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    where: TopicPartition
    offset: int
    lease_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    where: TopicPartition
    offset: int | None


@dataclass(frozen=True, slots=True)
class Reset:
    where: TopicPartition
    offset: int | None


@dataclass(frozen=True, slots=True)
class Assign:
    """The new assignment: partitions that keep their position, and those that start at one (None: unknown)."""

    kept: tuple[TopicPartition, ...]
    started: tuple[tuple[TopicPartition, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seek:
    where: TopicPartition
    position: int | None


@dataclass(frozen=True, slots=True)
class Truncate:
    where: TopicPartition
    before_offset: int


MicroOp = Send | Poll | Commit | Committed | Reset | Assign | Subscribe | Seek | Truncate


@dataclass(slots=True, kw_only=True)
class Event:
    """One line."""

    line: int
    process: str
    id: int | None
    outcome: Outcome
    function: Function
    time_ns: int
    start_ns: int | None
    ops: tuple[MicroOp, ...]
    acks: Acks | None
    attempts: int | None
    group: str | None
