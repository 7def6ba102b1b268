"""Tell the mirror which delayed records wait in a topic, so that they wait there, too, once it is promoted.

```
 the timers of a partition that wait ─▶ as told before?  rest
                                        else compare: the mirror answers what it lacks, and what waits there alone
    lacks:   note the timer ─▶ does it still wait? ─▶ tell its records
    others:  does it wait here?  no ─▶ tell that it is settled, and where the log ends
```
The note comes first: whoever delivers the timer later does so behind it, and the push of its record finds the note. So
the mirror's append settles the copy. The delivery of a topic's first partition does it, with the offsets of groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import (
    MIRROR_PUSH_BYTES,
    MIRROR_TIMERS_CHUNKS,
    MIRROR_TIMERS_COMPARED_MS,
    MIRROR_TIMERS_DIGESTS,
    MIRROR_TIMERS_EACH_MS,
    MIRROR_TIMERS_MS,
    MIRROR_TIMERS_PART_MS,
    MIRROR_TIMERS_PARTITION_MS,
    MIRROR_TIMERS_PUT,
    MIRROR_TIMERS_READ,
    PUSH_TARGET_MS,
    SCHEDULED_PARTITIONS_MAX,
    TIMER_MS_MAX,
)
from penstock_core.log.ref import LocatedRef
from penstock_core.log.timer import PlaceRange, Timer, TimerPlace, parse_scheduled_id, scheduled_id
from penstock_core.log.topic import Topic
from penstock_core.mirror.push import MirrorPush, PushPart, SourceTopic
from penstock_core.mirror.told_timers import TimersAnswer, TimersTelling, digest_of_places
from penstock_core.push.batch import Failed
from penstock_core.push.delivery import UNTOLD, TimersNote
from penstock_core.push.targets.target import StageTarget
from penstock_service.index.heads import waiting_timers
from penstock_service.push.lane_work import LaneWork
from penstock_service.segments.read_refs import read_refs_singly
from penstock_service.timers.scheduled import overdue_since

_OF_NONE = "-"  # no log
_Told = TypeVar("_Told")


def tell_timers(work: LaneWork, topic: Topic, told: SourceTopic, note: TimersNote | None) -> TimersNote | None:
    """The note after a part of a pass, to be stored. None in a stage that never had delayed records: that costs a read.

    16 queries, 8 for each partition, and 8 for each 900 timers; one request for those of a partition that have changed;
    for each copy a write, two reads and its bytes. Raises nothing: what fails is told later, and records are pushed all
    the same.
    """
    instance, teller = work.instance, _Teller(work, topic, told, note)
    try:
        if topic.mirror is not None or (note is None and instance.stores.timers.switched_on_ms() is None):
            return None
        teller.run()
    except PenstockError as error:
        instance.telemetry.log("timers_not_told", subscription=work.subscription.name, error=str(error))
        teller.begin_anew(is_quiet=True)
    return teller.note


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Timers of a partition that wait behind `after`, up to `until`: None for all. `is_whole`: the partition's."""

    key: PartitionKey
    timers: Sequence[Timer]
    after: TimerPlace | None
    until: TimerPlace | None

    @property
    def is_whole(self) -> bool:
        return self.after is None and self.until is None

    @property
    def places(self) -> list[TimerPlace]:
        return [each.place for each in self.timers]


class _Teller:
    """One part of a pass. `note` is what is to be stored after it."""

    def __init__(self, work: LaneWork, topic: Topic, told: SourceTopic, note: TimersNote | None) -> None:
        self._work, self._topic, self._told = work, topic, told
        self._instance = work.instance
        version = work.subscription.version
        is_known = note is not None and note.version == version
        self.note = note if note is not None and is_known else TimersNote(version=version, move=self._move())
        if note is not None and not is_known:  # its mirror may have begun anew
            digests = dict.fromkeys(note.digests, UNTOLD)
            self.note = replace(self.note, digests=digests, told=note.told, told_left=note.told_left)
        self._digests = dict(self.note.digests)

    def _move(self) -> int:
        move = self._topic.move
        return move.number if self._topic.is_moved and move is not None else 0

    def run(self) -> None:
        """Goes on with the pass, until `MIRROR_TIMERS_CHUNKS` comparisons are due, for 100 looks, or to its end."""
        begun_ms, todo, waiting = self._instance.clock.now_ms(), list[_Chunk](), 0
        if not self.note.has_begun:
            self.note = replace(self.note, move=self._move(), waiting=0, left=0, has_told=False)
            self._compare_all(begun_ms)
        last: _Chunk | None = None
        for looks, chunk in enumerate(self._chunks(), 1):
            self._work.hold.renew(has_progressed=False)
            waiting += len(chunk.timers)
            todo += [chunk] if self._must_tell(chunk) else []
            if len(todo) == MIRROR_TIMERS_CHUNKS or looks == SCHEDULED_PARTITIONS_MAX:
                last = chunk
                break
        untold = None if len(self._digests) < MIRROR_TIMERS_DIGESTS else UNTOLD
        names = [str(each.key.partition) for each in todo]
        if noted := [name for name in names if self._digests.get(name, untold) != UNTOLD]:
            self._digests |= dict.fromkeys(noted, UNTOLD)  # stored before a copy is there: this delivery may die
            self.note = replace(self.note, next_ms=0, is_quiet=False, digests=self._digests)
            return
        has_told = self.note.has_told
        for chunk in todo:
            self._work.hold.renew(has_progressed=False)
            if not self._work.has_time():
                self.begin_anew(is_quiet=False)
                return
            has_told |= self._tell(chunk)
        self.note = replace(
            self.note,
            waiting=self.note.waiting + waiting,
            has_told=has_told,
            digests=self._digests,
        )
        self._go_on(last, begun_ms)

    def _compare_all(self, now_ms: int) -> None:
        """Once a day, the pass compares each partition: copies may have come late, or have gone with a restore."""
        if now_ms - self.note.compared_ms >= MIRROR_TIMERS_COMPARED_MS:
            room = MIRROR_TIMERS_DIGESTS - len(self._digests)
            others = [name for name in map(str, self._topic.all_partitions()) if name not in self._digests]
            self._digests = dict.fromkeys([*self._digests, *others[:room]], UNTOLD)
            self.note = replace(self.note, compared_ms=now_ms)

    def begin_anew(self, *, is_quiet: bool) -> None:
        """The next part begins a pass."""
        next_ms = self._instance.clock.now_ms() + MIRROR_TIMERS_MS
        self.note = replace(self.note, next_ms=next_ms, is_quiet=is_quiet, digests=self._digests, partition=0, after="")

    def _must_tell(self, chunk: _Chunk) -> bool:
        known = self._digests.get(str(chunk.key.partition))
        if known is None and len(self._digests) < MIRROR_TIMERS_DIGESTS:
            return bool(chunk.timers)
        return not chunk.is_whole or known != digest_of_places(chunk.places)

    def _go_on(self, last: _Chunk | None, begun_ms: int) -> None:
        """The next part begins behind the chunk. None ends the pass."""
        if last is not None:
            is_end = last.until is None
            self.note = replace(
                self.note,
                next_ms=begun_ms + MIRROR_TIMERS_PART_MS,
                is_quiet=False,
                partition=last.key.partition + is_end,
                after="" if last.until is None else scheduled_id(last.key.partition, last.until),
            )
            return
        note = self.note
        rest_ms = MIRROR_TIMERS_PARTITION_MS * self._topic.partitions + MIRROR_TIMERS_EACH_MS * note.waiting
        self.note = replace(
            note,
            next_ms=begun_ms + max(MIRROR_TIMERS_MS, rest_ms),
            is_quiet=not note.has_told,
            partition=0,
            after="",
            told=note.waiting,
            told_left=note.left,
            told_move=note.move,
        )

    def _chunks(self) -> Iterator[_Chunk]:
        """The partitions from the note's place on, each with its timers in one or more parts."""
        first_ms, now_ms = overdue_since(self._instance), self._instance.clock.now_ms()
        begin = parse_scheduled_id(self.note.after)[1] if self.note.after else None
        for number in self._topic.all_partitions():
            if number < self.note.partition:
                continue
            key = PartitionKey(self._topic.topic_id, number)
            after = begin if number == self.note.partition else None
            places = PlaceRange(min(first_ms.get(key, now_ms), now_ms), TIMER_MS_MAX, after)
            timers = waiting_timers(self._instance, key, places, MIRROR_TIMERS_READ)
            while True:
                until = timers[-1].place if timers else None
                more = waiting_timers(self._instance, key, places._replace(after=until), 1) if until else ()
                yield _Chunk(key=key, timers=timers, after=after, until=until if more else None)
                if not more:
                    break
                after = until
                timers = waiting_timers(self._instance, key, places._replace(after=until), MIRROR_TIMERS_READ)

    def _tell(self, chunk: _Chunk) -> bool:
        """Compares, and tells what differs. False if the mirror takes none of it: what is overdue never goes."""
        name = str(chunk.key.partition)
        is_known = name in self._digests
        telling = TimersTelling(
            read_ms=self._instance.clock.now_ms(), listed=chunk.places, after=chunk.after, until=chunk.until
        )
        answer = self._send(chunk.key.partition, telling)
        timers = {each.place: each for each in chunk.timers}
        lacks = [timers[each] for each in answer.lacks if each in timers]
        left = self._in_parts(chunk.key, self._copy, lacks) + self._in_parts(chunk.key, self._settle, answer.others)
        self.note = replace(self.note, left=self.note.left + left)
        if is_known and chunk.is_whole and not (left or answer.others):
            self._digests[name] = digest_of_places(chunk.places)
            if not chunk.timers:
                del self._digests[name]
        differ = len(lacks) + len(answer.others)
        return differ == 0 or left < differ

    def _in_parts(
        self, key: PartitionKey, tell: Callable[[PartitionKey, Sequence[_Told]], int], told: Sequence[_Told]
    ) -> int:
        """The number that was left: also what there was no time for."""
        left = 0
        for at in range(0, len(told), MIRROR_TIMERS_PUT):
            part = told[at : at + MIRROR_TIMERS_PUT]
            self._work.hold.renew(has_progressed=False)
            left += tell(key, part) if self._work.has_time() else len(part)
        return left

    def _copy(self, key: PartitionKey, timers: Sequence[Timer]) -> int:
        stores, executor = self._instance.stores, self._instance.executor
        read_ms = self._instance.clock.now_ms()
        executor.map(stores.timers.note_told, timers).all_ok()
        stored = executor.map(lambda timer: stores.timers.get(key, timer.place), timers).all_ok()  # after the notes
        found, size, left = list[Timer](), 0, 0
        for timer in [each for each in stored if each is not None and each.is_waiting]:
            length = timer.ref.length
            if length > MIRROR_PUSH_BYTES:
                left += 1
                continue
            if size + length > MIRROR_PUSH_BYTES:
                left += self._send_copies(key, found, read_ms)
                found, size = [], 0
            found.append(timer)
            size += length
        return left + (self._send_copies(key, found, read_ms) if found else 0)

    def _send_copies(self, key: PartitionKey, timers: Sequence[Timer], read_ms: int) -> int:
        located = [LocatedRef(base_offset=Offset(0), ref=each.ref) for each in timers]
        contents = read_refs_singly(self._instance, located)
        read = [(timer, contents[place]) for timer, place in zip(timers, located, strict=True)]
        found = [(timer, content) for timer, content in read if not isinstance(content, PenstockError)]
        if not found:
            return len(timers)
        parts = [
            PushPart(
                length=len(content),
                offset_span=timer.ref.offset_span,
                record_count=timer.ref.record_count,
                max_timestamp_ms=timer.ref.max_timestamp_ms,
                appended_ms=0,
                tag_filter=timer.ref.tag_filter,
                may_expire=timer.ref.may_expire,
            )
            for timer, content in found
        ]
        telling = TimersTelling(read_ms=read_ms, copied=[timer.place for timer, _ in found])
        answer = self._send(key.partition, telling, parts, b"".join(content for _, content in found))
        self._instance.telemetry.count("timers_mirrored", len(found) - answer.left)
        return answer.left + len(timers) - len(found)

    def _settle(self, key: PartitionKey, places: Sequence[TimerPlace]) -> int:
        """Those that wait here by now came after the read: the next pass compares them."""
        stores, read_ms = self._instance.stores, self._instance.clock.now_ms()
        stored = self._instance.executor.map(lambda place: stores.timers.get(key, place), places).all_ok()
        settled = [place for place, timer in zip(places, stored, strict=True) if timer is None or not timer.is_waiting]
        head = stores.log.heads([key]).get(key)  # after that: what was delivered is in it
        if head is None or not settled:
            return len(places)
        telling = TimersTelling(read_ms=read_ms, settled=settled)
        answer = self._send(key.partition, telling, log_id=head.log_id or _OF_NONE, log_end=head.next_offset)
        return answer.left + len(places) - len(settled)

    def _send(
        self,
        partition: Partition,
        telling: TimersTelling,
        parts: Sequence[PushPart] = (),
        data: bytes = b"",
        *,
        log_id: str = _OF_NONE,
        log_end: Offset = Offset(0),  # noqa: B008 - a number
    ) -> TimersAnswer:
        target = self._work.subscription.target
        assert isinstance(target, StageTarget)
        push = MirrorPush(
            mirror=self._work.subscription.name,
            source=target.source,
            topic=self._told,
            partition=partition,
            log_id=log_id,
            base_offset=log_end,
            parts=parts,
            timers=telling,
            data=data,
        )
        answer = self._instance.stores.targets.mirror(target, push, PUSH_TARGET_MS)
        if isinstance(answer, Failed) or answer.timers is None:
            why = answer.error if isinstance(answer, Failed) else "its release keeps none"
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"the mirror takes no delayed records: {why}")
        return answer.timers
