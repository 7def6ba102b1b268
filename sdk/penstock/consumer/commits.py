"""The commits of a consumer: alone, or as a member of its group, under the lease of each partition.

| delivery      | commits                                                                                |
|---------------|----------------------------------------------------------------------------------------|
| at_least_once | a poll, each interval; before a partition moves; at the end. No interval: when asked   |
| at_most_once  | each poll, before it returns records                                                   |
| exactly_once  | transactions                                                                           |

Members also commit offsets that they have passed without a record, because the filter or compaction took it. A group
reads the next generation of partitions once its commits reach the ends of the ones before
(docs/protocol/partitions). The last offsets of a partition may have no record for the group. Then no commit of a record
reaches the end, so the consumer commits its position by itself. That is safe once all that it has returned is
committed.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from penstock.api import calls
from penstock.arguments import check
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.record_run import RecordRun
from penstock.consumer.settings import ConsumerSettings
from penstock.errors import InvalidError, LeaseLostError, TopicReplacedError, UnavailableError
from penstock.group.group_calls import commit_leased
from penstock.group.membership import Membership
from penstock.http.steps import Calls
from penstock.model import ConsumerRecord, GroupOffset, TopicPartition
from penstock.retry import NEVER_MS
from penstock.telemetry.operations import Notes
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_PASSED_COMMIT_MS

_log = logging.getLogger("penstock.consumer")
_NO_GROUP = "there are no commits without a group: give a group_id"


class Commits:
    """Remembers what is committed, so that the consumer commits nothing twice.

    With a `membership` it commits under the member's leases. Without one it commits for the group as any simple
    consumer does. It calls `after_commit` after each commit of positions: idle partitions may move then.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        buffer: FetchBuffer,
        run: RecordRun,
        *,
        after_commit: Callable[[], None],
        now_ms: Callable[[], int],
        notes: Notes | None = None,
    ) -> None:
        self._notes = notes
        self._settings = settings
        self._buffer = buffer
        self._run = run
        self._after_commit = after_commit
        self._now_ms = now_ms
        self._interval_ms = settings.commit_interval_ms
        self.is_automatic = self._interval_ms is not None
        self.due_ms = NEVER_MS if self._interval_ms is None else now_ms() + self._interval_ms
        self.passed = PassedOffsets(buffer, run, now_ms)
        self.membership: Membership | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._ahead: dict[TopicPartition, int] = {}  # the group's commits that the last commit was behind
        self._released: dict[TopicPartition, int] = {}  # between two polls, with the committed offsets at that time

    @property
    def group_id(self) -> str:
        """The group. Raises InvalidError if there is none."""
        if self._settings.group_id is None:
            raise InvalidError(ErrorCode.INVALID_REQUEST, _NO_GROUP)
        return self._settings.group_id

    # The times of commits.

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> Calls[None]:
        """Commit the offsets, by default the positions of all that was returned; those that have changed."""
        check(self._settings.group_id is not None, _NO_GROUP)
        check(
            self._settings.delivery != "exactly_once",
            "commit() with delivery='exactly_once': send the offsets in the transaction, by its send_offsets",
        )
        if offsets is None:
            yield from self.commit_offsets(self._run.positions())
        else:
            yield from self.commit_offsets(offsets, may_go_back=True)
        self._after_commit()

    def commit_before_return(self, records: list[ConsumerRecord]) -> Calls[bool]:
        """With at_most_once, commit the records that a poll is about to return.

        If that fails, the records go back to the buffer. False if a lease was lost or the topic was made anew; raises
        every other error. Takes out of `records` those that another consumer of the group has been handed; false if
        there are no others.
        """
        if self._settings.delivery != "at_most_once":
            return True
        try:
            yield from self.commit()
        except BaseException as error:
            firsts = {TopicPartition(record.topic, record.partition): record.offset for record in reversed(records)}
            for partition, offset in firsts.items():
                self._buffer.seek(partition, offset)
            if isinstance(error, LeaseLostError | TopicReplacedError):
                return False
            raise
        for partition, offset in self._ahead.items():
            self._buffer.seek(partition, offset)
        records[:] = [each for each in records if (each.topic, each.partition) not in self._ahead]
        return bool(records)

    def commit_due(self) -> Calls[None]:
        """The commit of an interval. A failure that may pass is left to the next one."""
        self.due_ms = self._now_ms() + (self._interval_ms or 0)
        try:
            yield from self.commit()
        except UnavailableError as error:
            _log.warning("offsets will be committed later: %s", error)
        except LeaseLostError as error:
            _log.info("%s", error)  # the rebalance tells the application
        except TopicReplacedError as error:
            _log.warning("%s", error)  # the partition starts anew

    def commit_passed(self) -> Calls[None]:
        """Commit offsets that the member has passed without a record. A failure is left to the next time."""
        owned = {} if self.membership is None else dict(self.membership.owned)
        offsets = self.passed.take(owned, self._committed)
        try:
            yield from self.commit_offsets(offsets)
        except (UnavailableError, LeaseLostError, TopicReplacedError) as error:
            _log.info("offsets without records will be committed later: %s", error)

    def commit_at_end(self) -> Calls[None]:
        """With auto commit, commit all that was returned: at the end it counts as dealt with."""
        try:
            if self.is_automatic:
                yield from self.commit()
        except (LeaseLostError, TopicReplacedError) as error:
            _log.warning("the last commit came too late: %s", error)

    # The commits.

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> Calls[None]:
        """Commit the offsets that have changed, all that can be. Raises LeaseLostError, and the service's errors.

        Without a membership, an offset below the group's commit changes nothing, unless the application has sought the
        partition or `may_go_back`: another consumer of the group, or an earlier commit that came late, is further on.
        """
        self._ahead = {}
        changed = {
            each: offset
            for each, offset in offsets.items()
            if offset not in (self._committed.get(each), self._released.get(each))
        }
        if not changed:
            return
        with self._noted(changed):
            if self.membership is not None:
                yield from self._commit_leased(self.membership, changed)
            else:
                yield from self._commit_alone(changed, may_go_back=may_go_back)

    def commit_starts(self, starts: Mapping[TopicPartition, calls.StartOffset]) -> Calls[dict[TopicPartition, int]]:
        """Commit the starts that `auto_offset_reset` gave, before a record behind them is returned.

        A consumer that takes over goes on from them, and not from an end that is later by then. The result has the
        partitions for which the group has committed a later offset meanwhile: they start there. Raises the service's
        errors.
        """
        if self.membership is not None:
            try:
                yield from self._commit_leased(self.membership, {each: start.offset for each, start in starts.items()})
            except (LeaseLostError, TopicReplacedError) as error:
                _log.info("%s", error)  # the rebalance takes the partition away
            return {}
        refused = yield from calls.commit_offsets(
            self.group_id,
            [calls.offset_item(each, start.offset, topic_id=start.topic_id) for each, start in starts.items()],
        )
        ahead: dict[TopicPartition, int] = {}
        for each, refusal in refused.items():
            if refusal.code is ErrorCode.OFFSET_BEHIND:
                ahead[each] = int(refusal.facts["committed_offset"])
            elif refusal.code is ErrorCode.LEASE_HELD:
                _log.warning("%s[%d] starts at the end without a commit: %s", *each, refusal)
            else:
                raise refusal
        self._committed |= {each: ahead.get(each, start.offset) for each, start in starts.items()}
        return ahead

    def transaction_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """Offsets for a transaction to commit, with the leases that prove the right to. Raises LeaseLostError."""
        group_id = self.group_id
        if self.membership is None:
            return [
                GroupOffset(group=group_id, partition=each, offset=offset, topic_id=self._topic_id(each))
                for each, offset in offsets.items()
            ]
        member, owned = self.membership.settings, self.membership.owned
        self._refuse_lost(offsets.keys() - owned.keys())
        return [
            GroupOffset(
                group=group_id,
                partition=each,
                offset=offset,
                member_id=member.member_id,
                instance_id=member.instance_id,
                lease_epoch=owned[each].lease_epoch,
            )
            for each, offset in offsets.items()
        ]

    def mark_committed(self, partition: TopicPartition, offset: int) -> None:
        """Note that the group has committed this offset."""
        self._committed[partition] = offset
        self._released.pop(partition, None)

    def is_committed(self, partition: TopicPartition, offset: int) -> bool:
        """The group has committed exactly this offset, by what the consumer knows."""
        return self._committed.get(partition) == offset

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record to return, of each partition where it is known."""
        return self._run.positions()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """The member no longer owns these. The application may not know: the same commit again is no error."""
        self._released |= {each: self._committed[each] for each in partitions}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Other consumers may commit for these from now on."""
        for partition in partitions:
            self._committed.pop(partition, None)
        self.passed.forget(partitions)

    @contextmanager
    def _noted(self, changed: Iterable[TopicPartition]) -> Iterator[None]:
        """The body commits for these partitions."""
        if self._notes is None:
            yield
            return
        started_ns, error = self._notes.now_ns(), None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._notes.settled("commit", changed, None, started_ns, error)

    def _topic_id(self, partition: TopicPartition) -> str | None:
        return self._buffer.cursor(partition).topic_id if partition in self._buffer.assignment() else None

    def _commit_alone(self, changed: Mapping[TopicPartition, int], *, may_go_back: bool) -> Calls[None]:
        """Commit as a simple consumer. `_ahead` has the commits of the group that these offsets are behind."""
        moved = {each for each in self._buffer.assignment() if self._buffer.cursor(each).is_moved}
        items = {
            each: calls.offset_item(each, offset, topic_id=self._topic_id(each)) for each, offset in changed.items()
        }
        refused = yield from calls.commit_offsets(self.group_id, items.values())
        behind = {each: error for each, error in refused.items() if error.code is ErrorCode.OFFSET_BEHIND}
        back = {each: error for each, error in behind.items() if may_go_back or each in moved}
        if back:
            again = [{**items[each], "back_from": calls.seen_commit(error)} for each, error in back.items()]
            refused = {each: error for each, error in refused.items() if each not in back}
            refused |= yield from calls.commit_offsets(self.group_id, again)
            behind = {each: error for each, error in refused.items() if error.code is ErrorCode.OFFSET_BEHIND}
        self._ahead = {each: int(error.facts["committed_offset"]) for each, error in behind.items()}
        refused = {each: error for each, error in refused.items() if each not in behind}
        done = {each: offset for each, offset in changed.items() if each not in refused and each not in behind}
        self._committed |= done
        for each in done:
            self._buffer.settle(each)
        for each, error in refused.items():
            if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                self._buffer.replaced(each)
        for error in refused.values():
            raise error

    def _commit_leased(self, membership: Membership, changed: Mapping[TopicPartition, int]) -> Calls[None]:
        owned = dict(membership.owned)  # as it is now: a partition that is granted meanwhile has another lease
        leased = {each: (offset, owned[each]) for each, offset in changed.items() if each in owned}
        group_id, member = self.group_id, membership.settings
        refused = yield from commit_leased(group_id, member, leased)
        # This member holds the lease, so the offset that is ahead is its own: the application went back on purpose.
        behind = {each: error for each, error in refused.items() if error.code is ErrorCode.OFFSET_BEHIND}
        if behind:
            again = yield from commit_leased(group_id, member, {each: leased[each] for each in behind}, behind)
            refused = {each: error for each, error in refused.items() if each not in behind} | again
        self._committed |= {each: offset for each, (offset, _) in leased.items() if each not in refused}
        for each, error in refused.items():
            if error.code in (ErrorCode.LEASE_FENCED, ErrorCode.UNKNOWN_TOPIC_ID):
                membership.fenced(each, leased[each][1].lease_epoch, self._now_ms())
            elif error.code is ErrorCode.UNKNOWN_TOPIC:
                self._buffer.gone.add(each)
        for each, error in refused.items():
            raise _lost_with_its_topic(each, error) if error.code is ErrorCode.UNKNOWN_TOPIC else error
        self._refuse_lost(changed.keys() - leased.keys())

    def _refuse_lost(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, partition in partitions:
            raise LeaseLostError(
                ErrorCode.LEASE_FENCED,
                f"this member of group {self.group_id} does not own {topic}[{partition}]: nothing was committed for "
                "it, and its owner goes on from the last commit",
            )


def _lost_with_its_topic(partition: TopicPartition, error: PenstockError) -> LeaseLostError:
    topic, number = partition
    return LeaseLostError(
        ErrorCode.LEASE_FENCED,
        f"topic {topic!r} was deleted, and the lease of {topic}[{number}] with it: nothing was committed for it",
        maybe_applied=error.maybe_applied,
    )


class PassedOffsets:
    """The positions to commit although no record was returned before them. It looks each `SDK_PASSED_COMMIT_MS`."""

    def __init__(self, buffer: FetchBuffer, run: RecordRun, now_ms: Callable[[], int]) -> None:
        self._buffer = buffer
        self._run = run
        self._now_ms = now_ms
        self._settled: dict[TopicPartition, int] = {}
        self.due_ms = now_ms() + SDK_PASSED_COMMIT_MS

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these offsets: a transaction has committed them, or the service has told them."""
        for partition, offset in offsets.items():
            self._settled[partition] = max(offset, self._settled.get(partition, 0))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Other consumers may commit for these from now on."""
        for partition in partitions:
            self._settled.pop(partition, None)

    def take(
        self, owned: Collection[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offsets to commit now. The next look comes later."""
        self.due_ms = self._now_ms() + SDK_PASSED_COMMIT_MS
        found: dict[TopicPartition, int] = {}
        for partition, position in self._buffer.positions().items():
            cursor = self._buffer.cursor(partition)
            if partition not in owned or partition == self._run.partition or position <= cursor.returned_end:
                continue
            known = max(committed.get(partition, -1), self._settled.get(partition, -1))
            if position > known and (known >= cursor.returned_end or not cursor.has_returned):
                found[partition] = position
        return found
