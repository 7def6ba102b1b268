"""The format of a history: JSON lines, one event or one completed operation per line, in order of `time_ns`.

```json
{"process": "p1", "id": 7, "type": "invoke", "f": "send", "time_ns": 10, "ops": [["send", "orders", 0, "v1"]]}
{"process": "p1", "id": 7, "type": "ok", "f": "send", "time_ns": 20, "ops": [["send", "orders", 0, "v1", 41]]}
{"process": "c1", "type": "ok", "f": "poll", "start_ns": 9, "time_ns": 30, "ops": [["poll", "orders", 0, [[41, "v1"]]]]}
```

- `process`: a string; one sequential client. A client that crashes comes back under a new name.
- `id`: an integer that pairs an invoke with its completion; without it a process has one operation open at a time.
- `type`: `invoke`; `ok` = done; `fail` = certainly without effect; `info` = maybe, as is an invoke never completed.
- `f`: `send`, `poll`, `commit`, `committed`, `reset`, `assign`, `subscribe`, `seek`, `truncate`, or `txn` (sends,
  polls, commits, schedules and acknowledgements at once). Of delayed records: `schedule`, `cancel`. Of share groups:
  `share`, `acquire` (with acknowledgements), `acknowledge`, `dead-letters`, `drained`. Of push subscriptions: `push`,
  `handle`, `copies`, `stop` (a pause or a deletion), `resume`, `disturb`, `dead-letters`, `drained`.
- `time_ns`: of the event, from one monotonic clock (or a simulated one), never falling from line to line.
- `start_ns`: on a completion that has no invoke line, when it began; its absence means at `time_ns`.
- `wall_ms`: optional, for people; never judged.
- `ops`: the micro-operations in order. A completion without them has those of its invoke. If an invoke names sends, its
  completion must name the same. All sends of a `send` to one partition are one append; a `txn` is one transaction.
- `acks` (`quorum` if absent), `attempts` (how often the client sent it; absent: 1, or for a maybe, unknown).
- `group`: of commits, and of what is committed; on a `poll` and an `assign` of a process that shares it; the share
  group, or the push subscription, of all that concerns one, except `dead-letters`.

| micro-operation | |
|---|---|
| `["send", topic, partition, value]` or `[…, offset]` | the offset is null or absent if unknown |
| `["send", …, offset, [topic, partition, offset]]` | and the record that it was made from |
| `["send", …, offset, [topic, partition, offset, name]]` | where several are made from one |
| `["send", …, offset, source, key]` | the source may be null; the key is a string |
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

`micro_ops` has those of delayed records, share groups and push subscriptions.

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
    SCHEDULE = "schedule"
    CANCEL = "cancel"
    SHARE = "share"
    ACQUIRE = "acquire"
    ACKNOWLEDGE = "acknowledge"
    DEAD_LETTERS = "dead-letters"
    DRAINED = "drained"
    PUSH = "push"
    HANDLE = "handle"
    COPIES = "copies"
    STOP = "stop"
    RESUME = "resume"
    DISTURB = "disturb"


class Verb(StrEnum):
    """The types of acknowledgement. A give-back is a release that takes the delivery back."""

    ACCEPT = "accept"
    RELEASE = "release"
    GIVE_BACK = "give-back"
    REJECT = "reject"
    RENEW = "renew"


class AckResult(StrEnum):
    """The result of an acknowledgement: done now, done before, or somebody else has the records."""

    OK = "ok"
    DONE = "done"
    LOST = "LOCK_LOST"


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
    key: str | None = None


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


@dataclass(frozen=True, slots=True)
class Schedule:
    where: TopicPartition
    value: Value
    due_ns: int
    id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    topic: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The settings of a share group."""

    topics: tuple[str, ...]
    deliveries_max: int | None = None
    is_by_key: bool = False
    dead_letter_topic: str | None = None
    ending: str | None = None


@dataclass(frozen=True, slots=True)
class Nonce:
    """The name of an acquire. All tries of it have the same, and their locks' ids begin with it and a point."""

    text: str


@dataclass(frozen=True, slots=True)
class Acquired:
    where: TopicPartition
    lock_id: str
    delivery_count: int
    left_ms: int
    records: tuple[tuple[int, Value], ...]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """`ranges` is None for all records of the lock, `result` before the answer."""

    where: TopicPartition
    lock_id: str
    verb: Verb
    ranges: tuple[tuple[int, int], ...] | None = None
    result: AckResult | None = None
    detail: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter: its place in the dead-letter topic, its content, and what its headers tell."""

    offset: int
    value: Value
    key: str | None
    origin: TopicPartition
    origin_offset: int
    group: str
    deliveries: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetters:
    where: TopicPartition
    letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, slots=True)
class Drained:
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """The settings of a push subscription, whose creation is the operation that names them.

    `is_latest`: it begins with the records that come after its creation. `copies_to`: its target is this topic, which
    has as many partitions as its own topics. `lock_ms`: a delivery that had begun may go on so long after a stop.
    `is_complete`: the history has each invocation of its target, and each disturbance of its deliveries.
    """

    topics: tuple[str, ...]
    is_ordered: bool = True
    dead_letter_topic: str | None = None
    ending: str | None = None
    is_latest: bool = False
    copies_to: str | None = None
    lock_ms: int | None = None
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Handling:
    """The records that a subscription's target has handled, in its order, and the offsets that it names as failed.

    The invoke has the records that it was given.
    """

    where: TopicPartition
    records: tuple[tuple[int, Value], ...]
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies that a reader found in the topic which a subscription copies to: places and values."""

    where: TopicPartition
    records: tuple[tuple[int, Value], ...]


@dataclass(frozen=True, slots=True)
class Disturb:
    """An answer of a target may have been lost until `lasts_ms` after the operation, because of `why`."""

    why: str
    lasts_ms: int = 0


LogOp = Send | Poll | Commit | Committed | Reset | Assign | Subscribe | Seek | Truncate
PushOp = Push | Handling | Copies | Disturb
QueueOp = Schedule | Cancel | Share | Nonce | Acquired | Acknowledge | DeadLetters | Drained | PushOp
MicroOp = LogOp | QueueOp


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
