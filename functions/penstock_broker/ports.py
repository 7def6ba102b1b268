"""What the use cases need of the world. Every method raises PenstockError only.

A write that may have happened although its answer was lost raises with `maybe_applied`; every other error of a
write means that nothing was changed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock_core.catch_up import CatchUpPass
from penstock_core.compaction import CompactionState, Swap
from penstock_core.errors import PenstockError
from penstock_core.group import GroupState, Member, Report
from penstock_core.ids import GroupName, MemberName, Offset, SegmentId, TopicId, TopicName, TransactionalId, ZoneName
from penstock_core.index import Head, Page, Roll
from penstock_core.items import CommittedOffset, DeletedTopic
from penstock_core.keys import PartitionKey
from penstock_core.lease import Lease, Tenure
from penstock_core.producer_state import ProducerSequence, ProducerState
from penstock_core.ref import LocatedRef, Ref
from penstock_core.repair import Repair
from penstock_core.topic import Topic
from penstock_core.transaction import Transaction, TransactionalProducer, TransactionState
from penstock_core.transaction_items import StagedRef
from penstock_core.zone_state import ZoneStates

DELETE_MAX = 1_000  # what DeleteObjects takes
ARCHIVE = "archive"  # what the archive is called where zones have their names

A = TypeVar("A")
T = TypeVar("T")


class TopicStore(Protocol):
    """Topics by name. Reads are consistent."""

    def begin(self, note: DeletedTopic) -> None:
        """Notes that heads of a topic that is being created are made from here on. One put."""

    def create(self, topic: Topic) -> None:
        """Makes the topic visible and takes the note of its creation away, at once or not at all. TOPIC_EXISTS if the
        name is taken, CONCURRENT_UPDATE if the note is gone or was given up. One transaction, and a read if it is
        refused."""

    def give_up(self, note: DeletedTopic) -> bool:
        """Makes the note of a creation that of a deleted topic: it can never get its name from here on. False if it has
        it, or was given up before. One conditional put."""

    def get(self, name: TopicName) -> Topic | None:
        """One consistent read."""

    def list(self) -> Sequence[Topic]:
        """All topics, sorted by name. Reads the whole table."""

    def replace(self, old: Topic, new: Topic) -> None:
        """CONCURRENT_UPDATE unless the stored topic is still `old`. One conditional put."""

    def delete(self, topic: Topic, now_ms: int) -> None:
        """Takes the name away and leaves a note of the topic's data, at once or not at all. UNKNOWN_TOPIC if the
        name does not stand for this topic id any more, CONCURRENT_UPDATE if the topic has got partitions since.
        One transaction, and a read if it is refused."""

    def deleted(self) -> Sequence[DeletedTopic]:
        """The notes of topics that were deleted or are being created, in no order; consistent. One query for each
        MB."""

    def forget_deleted(self, topic_id: TopicId) -> None:
        """Removes the note, if it is there. One delete."""


class LogIndex(Protocol):
    """Heads and pages of partitions."""

    def create_head(self, key: PartitionKey) -> None:
        """An empty head, unless there is one. One conditional put."""

    def delete_head(self, key: PartitionKey) -> None:
        """From here on every append to the partition is refused. One delete."""

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        """Consistent; partitions without a head are missing from the answer. One call for up to 100."""

    def append(self, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:
        """Appends the ref and advances the offset; the head as it is then. UNKNOWN_PARTITION if there is no head.
        `unconfirmed_zones` is the bitmap of zones that have not confirmed the segment. One conditional update,
        never repeated once it may have been applied."""

    def append_in_sequence(
        self,
        key: PartitionKey,
        ref: Ref,
        unconfirmed_zones: int,
        sequence: ProducerSequence,
        unlisted_since: int,
    ) -> tuple[bool, Head]:
        """Appends the ref, whose sequence this is, if it follows what the head knows of its producer; whether it did,
        and the head then. If the head knows nothing, it does if the count of its evictions is `unlisted_since`.
        UNKNOWN_PARTITION if there is no head. One conditional update, repeated if it may have been applied: a second
        one is refused."""

    def evicted_producer(self, key: PartitionKey, producer_id: int) -> ProducerState | None:
        """What was known of a producer when it last left the head; consistent. One read."""

    def roll(self, key: PartitionKey, roll: Roll) -> bool:
        """Moves refs from the tail to a page, and producers from the head to items of their own, at once or not at
        all; False if somebody else has, or one of the producers has written since. One transaction."""

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        """The page that covers `offset` and those behind it, `limit` at most; consistent. One query."""

    def pages_before(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        """The pages that end at `offset` or below, newest first, `limit` at most; consistent. One query."""

    def raise_log_start(self, key: PartitionKey, offset: Offset) -> Head:
        """Raises the log start offset to `offset` unless it is there already; the head as it is then.
        OFFSET_OUT_OF_RANGE above the high watermark, UNKNOWN_PARTITION if there is no head. One conditional update."""

    def mark_stored(self, key: PartitionKey, located: LocatedRef, zones: int) -> bool:
        """Sets the bits `zones` in the ref wherever it is by now, tail or page; other bits may differ from `located`.

        False if the ref is gone. A roll that was decided before may bring the page without the bits: they only ever
        say too little, which costs a repair that finds nothing to do. A read or two and one conditional update, no
        update if the bits are set; CONCURRENT_UPDATE if others were faster every time."""

    def note_log_start(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        """Notes with the head that `offset` was its log start at `seen_ms`. UNKNOWN_PARTITION if there is no head.
        Any such note is true for ever, so the order of two does not matter. One conditional update."""

    def delete_page(self, key: PartitionKey, end_offset: Offset) -> None:
        """Removes the page that ends before `end_offset`, if it is there. One delete."""


class TransactionStore(Protocol):
    """Transactional producers, and the one write that commits a transaction of theirs. Reads are consistent."""

    def get(self, transactional_id: TransactionalId) -> TransactionState | None:
        """One read."""

    def begin_epoch(
        self, transactional_id: TransactionalId, old: TransactionState | None, new: TransactionState
    ) -> TransactionState:
        """Stores `new`'s producer id and epoch; the state then, whose last transaction is what it is. CONCURRENT_UPDATE
        unless the stored epoch is still `old`'s. One conditional update."""

    def put_stage(
        self, producer: TransactionalProducer, transaction: int, stage: int, refs: Sequence[StagedRef], now_ms: int
    ) -> None:
        """Keeps what a stage has put, in place of what the same stage had before; for a day at least. One put."""

    def stages(self, producer: TransactionalProducer, transaction: int) -> Sequence[Sequence[StagedRef]]:
        """What the stages of that transaction have put, in their order. One query for each MB."""

    def commit(self, transaction: Transaction) -> bool:
        """Commits all of it or nothing; False, and nothing changed, if the producer's epoch or last transaction is not
        as it must be. UNKNOWN_PARTITION if one has no head, and what commits of offsets are refused with (GroupStore).
        One transaction; if it is refused, reads to tell why. Repeated if it may have been applied: a second one is
        refused."""


class CompactionStore(Protocol):
    """Leases of compaction, the one write that exchanges pages, and what has to be known of it for a while."""

    def acquire(self, key: PartitionKey, now_ms: int, deadline_ms: int) -> CompactionState | None:
        """The lease under the next epoch; None while somebody holds it. One conditional update, never repeated once it
        may have been applied: then nobody has the lease until its deadline."""

    def save(self, key: PartitionKey, state: CompactionState) -> bool:
        """Stores the deadline and what was cleaned; False if the lease is another's by now. One conditional update."""

    def swap(self, key: PartitionKey, swap: Swap) -> bool:
        """Exchanges the pages or changes nothing; False if one of the swap's conditions does not hold, be it by an
        attempt of our own whose answer was lost. One transaction of `swap.actions` actions."""

    def retired(self, key: PartitionKey, since_ms: int) -> Sequence[SegmentId]:
        """The segments that swaps have retired since then; consistent. One query for each MB."""

    def find_merged(self, key: PartitionKey, sequence: ProducerSequence) -> Offset | None:
        """The offset of the first of these records, if a swap of the last days has merged their ref, newest first;
        consistent. One query, and up to 7 more for each further MB: None beyond that."""


class ZoneStateStore(Protocol):
    """The states of all zones, and how far the keeper has come with those that catch up. Reads are consistent."""

    def get(self) -> ZoneStates:
        """One read."""

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        """CONCURRENT_UPDATE unless the stored version is still `old`'s. One conditional put."""

    def get_pass(self) -> CatchUpPass | None:
        """The pass over the index that is under way. One read."""

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        """CONCURRENT_UPDATE unless the stored pass is still as old as `old`, by its number of saves. One conditional
        put."""


class GroupStore(Protocol):
    """Leases of groups, and the offsets committed under them. Reads are consistent."""

    def commit(self, group: GroupName, committed: CommittedOffset, tenure: Tenure | None, may_go_back: bool) -> None:
        """By the lease's owner, or (None) by anybody while the lease has none. LEASE_FENCED, LEASE_HELD; OFFSET_BEHIND
        unless it may go back. One conditional update, never repeated once it may have been applied."""

    def committed(self, group: GroupName) -> Sequence[CommittedOffset]:
        """All of the group's commits, in no order. One query for each MB."""

    def leases(self, group: GroupName) -> Sequence[Lease]:
        """All of the group's leases, in no order. One query for each MB."""

    def find_leases(self, group: GroupName, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Lease]:
        """Those that there are. One call for up to 100."""

    def take_lease(self, group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> Lease:
        """Gives the lease to `owner` under `epoch`, the next; the lease as it is then. CONCURRENT_UPDATE unless it has
        the epoch that was seen. One conditional update, never repeated once it may have been applied: each epoch is
        told to one caller at most."""

    def reset_lease(self, group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> None:
        """Sets the offset and leaves the lease without owner under `epoch`, the next. CONCURRENT_UPDATE unless it has
        the epoch that was seen. One conditional update."""

    def delete_lease(self, group: GroupName, seen: Lease) -> bool:
        """Removes the lease with its offset; False if somebody has acquired it or committed since. One conditional
        delete."""


class MembershipStore(Protocol):
    """Groups, their members and their target assignments. Reads are consistent."""

    def get_group(self, group: GroupName) -> GroupState | None:
        """One read."""

    def find_groups(self, groups: Sequence[GroupName]) -> Mapping[GroupName, GroupState]:
        """Those that there are. One call for up to 100."""

    def change_group(self, old: GroupState | None, new: GroupState) -> None:
        """CONCURRENT_UPDATE unless the stored version is still `old`'s (None: there is no group yet). One conditional
        put."""

    def delete_group(self, seen: GroupState) -> None:
        """CONCURRENT_UPDATE unless the stored version is still the one seen. One conditional delete."""

    def register(self, group: GroupName) -> None:
        """Notes the group's name for `registered`. One put."""

    def unregister(self, group: GroupName) -> None:
        """One delete."""

    def registered(self, after: str, limit: int) -> Sequence[GroupName]:
        """Up to `limit` names behind `after`, sorted. One query."""

    def members(self, group: GroupName) -> Sequence[Member]:
        """All members, in order of their names. One query for each MB."""

    def find_members(self, group: GroupName, names: Sequence[MemberName]) -> Mapping[MemberName, Member]:
        """Those that there are. One call for up to 100."""

    def put_member(self, group: GroupName, old: Member | None, new: Member) -> None:
        """CONCURRENT_UPDATE unless the stored member is `old` still, as far as its heartbeats go (None: there is none).
        One conditional put."""

    def touch_member(
        self,
        group: GroupName,
        name: MemberName,
        member_id: str,
        sequence: int,
        session: int,
        deadline_ms: int,
        report: Report | None,
    ) -> Member:
        """A heartbeat of the process `member_id`: the member as it is then. UNKNOWN_MEMBER if there is none, or only in
        another session, MEMBER_FENCED if it is another process by now, STALE_HEARTBEAT if one with this sequence or a
        higher has come. One conditional update."""

    def remove_member(self, group: GroupName, seen: Member) -> bool:
        """False if a heartbeat or another process has come since. One conditional delete."""

    def put_target(self, group: GroupName, epoch: int, target_id: str, chunks: Sequence[bytes]) -> None:
        """One put for each chunk."""

    def get_target(self, group: GroupName, epoch: int, target_id: str) -> Sequence[bytes]:
        """The chunks in order; none if it was removed. One query for each MB."""

    def remove_targets(self, group: GroupName, below_epoch: int) -> None:
        """Removes every target of an earlier epoch. A query, and one delete for each chunk."""


class JobCursors(Protocol):
    """Where a scheduled job goes on that did not finish in its time. What is lost or old costs work, never more."""

    def get(self, job: str) -> str | None:
        """None if the job begins anew. One read."""

    def put(self, job: str, cursor: str) -> None:
        """One put."""

    def clear(self, job: str) -> None:
        """One delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKeys:
    """Object keys in no order, and the token of the next part, None after the last."""

    keys: Sequence[str]
    next_token: str | None


class SegmentStore(Protocol):
    """Segments in one zone, or in the archive."""

    @property
    def zone(self) -> ZoneName: ...

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        """Stores the whole segment or nothing, checked on arrival; putting the same segment again is no error.
        One put."""

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        """Exactly `length` bytes. STORAGE_UNAVAILABLE if the zone does not answer, or, with the fact `is_missing`, if
        it has no such segment; CORRUPT_SEGMENT if it has one that is too short. One ranged get."""

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        """The whole object as it is, good or not; None if the zone answers that it has none. STORAGE_UNAVAILABLE if it
        does not answer. One get."""

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        """`put`, over whatever is there: to heal a bad copy. One put."""

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        """A part of the keys that begin with `prefix`, which ends in "/"; whatever is stored meanwhile may be missing.
        One list call, for 1,000 keys at most."""

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        """Removes segments, `DELETE_MAX` at most, for ever; those that are not there are no error. One call."""


class ArchiveStore(SegmentStore, Protocol):
    """The one regional bucket that holds the segments that compaction has made."""

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        """`put` of a segment of any size, of which only a few MiB are in memory at a time. One put, or a part for
        each 8 MiB and two calls more; what an upload leaves that died goes by the bucket's lifecycle."""


class RepairQueue(Protocol):
    """Repairs for `replicate` to carry out, at least once each and in no order."""

    def send(self, repair: Repair) -> None:
        """One send."""


class Parallel(Protocol):
    """Calls a function for many items side by side. A PenstockError is that item's result; any other exception is
    a defect and raised."""

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> "list[T | PenstockError]":
        """All results, in the order of the items."""

    def race(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: "Callable[[Sequence[T | PenstockError | None]], bool]",
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        places: Sequence[str] = (),
        patience_ms: Sequence[float] = (),
    ) -> "list[T | PenstockError | None]":
        """Results as soon as `is_enough` of them says so, then `grace_ms` more for the rest, and after `timeout_ms` in
        any case; None is not there yet.

        With `patience_ms`, only the first item begins at once: item i + 1 begins when item i has taken
        `patience_ms[i]`, or when all that have begun have ended and were not enough. `places` names where each item
        goes (by default its index): calls that hang in one place hold up no other, in later races either."""


class Clock(Protocol):
    """Time, in one adapter."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def monotonic_ms(self) -> float:
        """For durations."""

    def sleep_ms(self, duration_ms: float) -> None: ...


class Chance(Protocol):
    """Random bytes, in one adapter."""

    def random_bytes(self, count: int) -> bytes: ...
