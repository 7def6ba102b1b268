"""The checks of each effect of retention, truncation and the sweep: they remove only what they may remove.

Records go only when they are expired. Pages and objects go only where no reader can still read: the log must have
begun above them for as long as a function may run.
"""

from collections.abc import Sequence
from itertools import pairwise

from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId
from penstock_core.limits import ACKNOWLEDGED_MS_MIN, TOPIC_PARTITIONS_MAX, UNLIMITED
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.log.retention_raise import may_have_expired
from penstock_core.log.topic import Topic, TopicConfig
from tests.history import format as history
from tests.simulation.engine.run_state import RunState
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS, FUNCTION_TIMEOUT_MS
from tests.simulation.oracle.expected_log import Appended, ExpectedLog
from tests.simulation.oracle.violation import expect

# The greatest age of the setting behind a raised log start: cached for 10 s, used by a run of 30 s, written late.
_SETTING_AGE_MS_MAX = 70_000.0


class Removals:
    """The removals of one run, and the times at which log starts rose and settings changed."""

    def __init__(self, state: RunState, log: ExpectedLog) -> None:
        self._state = state
        self._log = log
        self.swept: set[tuple[str, SegmentId]] = set()  # copies that the sweep removed rightly
        self._log_starts: dict[PartitionKey, list[tuple[float, int]]] = {}
        self._configs: dict[TopicId, list[tuple[float, TopicConfig]]] = {}
        self._deleted_ms: dict[TopicId, float] = {}
        self._named: dict[SegmentId, list[tuple[PartitionKey, int]]] = {}  # with the end of each ref
        self._retired_ms: dict[tuple[PartitionKey, int, SegmentId], float] = {}

    def configured(self, topic: Topic) -> None:
        """Note the topic's settings from now on."""
        self._configs.setdefault(topic.topic_id, []).append((self._now_ms, topic.config))

    def topic_deleted(self, topic_id: TopicId) -> None:
        self._deleted_ms.setdefault(topic_id, self._now_ms)

    def appended(self, key: PartitionKey, ref: Ref, end_offset: int) -> None:
        """Check that the segment that a new ref names was not swept before."""
        self._named.setdefault(ref.segment_id, []).append((key, end_offset))
        gone = [label for label, segment_id in self.swept if segment_id == ref.segment_id]
        expect(not gone, f"{key} names segment {ref.segment_id.hex()}, which was swept from {gone} before")

    def retired(self, key: PartitionKey, located: LocatedRef) -> None:
        """Note that the partition no longer names this ref. Its readers may go on for as long as a function may run."""
        self._retired_ms[key, located.end_offset, located.ref.segment_id] = self._now_ms

    def stored(self, label: str, segment_id: SegmentId) -> None:
        self.swept.discard((label, segment_id))

    def raised(self, key: PartitionKey, offset: Offset) -> None:
        """Check that the log start rises no further than an operator asked, or only over whole expired refs."""
        before = self.log_start_at(key, self._now_ms)
        if offset <= before:
            return
        where = (self._log.names[key.topic_id], int(key.partition))
        if offset > self._state.claims.truncations.get(where, 0):
            self._state.count("log start raised by retention")
            entries = self._log.appends.get(key, ())
            is_end = self._log.is_merged_end(key, offset)
            expect(
                is_end or any(entry.end_offset == offset for entry in entries),
                f"log start of {key} cuts a ref at {offset}",
            )
            # A setting counts until another one replaces it, and then for as long as an instance may remember it.
            configs = self._configs[key.topic_id]
            ends = [*(at_ms for at_ms, _ in configs[1:]), float("inf")]
            recent = [
                config
                for (_, config), end_ms in zip(configs, ends, strict=True)
                if end_ms >= self._now_ms - _SETTING_AGE_MS_MAX
            ]
            is_expired = any(self.is_expired(entries, before, offset, config, 2 * CLOCK_SKEW_MS) for config in recent)
            expect(
                is_expired or self._was_expired(key, before, offset),
                f"log start of {key} was raised from {before} to {offset}, over what is not expired: {recent}",
            )
        self._note_log_start(key, offset)

    def _was_expired(self, key: PartitionKey, start: int, end: int) -> bool:
        """Return whether all these refs were expired when a setting went, and the last one may have lost its item.

        Then the walk after a raise of the retention passes them (keep_items).
        """
        entries, configs = self._log.appends.get(key, ()), self._configs[key.topic_id]
        now_ms = int(self._now_ms + EPOCH_MS + 2 * CLOCK_SKEW_MS)
        if not any(each.end_offset == end and may_have_expired(each.ref, now_ms) for each in entries):
            return False
        return any(
            self.is_expired(entries, start, end, config, 2 * CLOCK_SKEW_MS + ended_ms - self._now_ms)
            for (_, config), (ended_ms, _) in pairwise(configs)
        )

    def passed(self, key: PartitionKey, offset: Offset) -> None:
        """Check that the log start rises over whole refs that are old enough. Workloads check the readers."""
        before = self.log_start_at(key, self._now_ms)
        went = [each for each in self._log.appends.get(key, ()) if before < each.end_offset <= offset]
        expect(
            bool(went) and went[-1].end_offset == offset, f"log start of {key} cuts a ref at {offset}, from {before}"
        )
        young = [each for each in went if self._now_ms + 2 * CLOCK_SKEW_MS - each.at_ms <= ACKNOWLEDGED_MS_MIN]
        expect(not young, f"log start of {key} was raised to {offset}, over young refs: {young}")
        self._state.count("log start raised past readers")
        self._note_log_start(key, offset)

    def _note_log_start(self, key: PartitionKey, offset: Offset) -> None:
        where = (self._log.names[key.topic_id], int(key.partition))
        self._log_starts.setdefault(key, []).append((self._now_ms, offset))
        self._state.history.recorder.done("log starts", history.Function.TRUNCATE, [history.Truncate(where, offset)])

    def is_expired(
        self, entries: Sequence[Appended], start: int, end: int, config: TopicConfig, skew_ms: float
    ) -> bool:
        """Return whether all refs that end in `(start, end]` are expired by these settings."""
        if not config.is_expiring:
            return False
        behind = 0
        for entry in reversed(entries):
            if start < entry.end_offset <= end:
                age_ms = self._now_ms + skew_ms - entry.at_ms  # by the true time of the append or the delivery
                is_old = config.retention_ms != UNLIMITED and age_ms > config.retention_ms
                is_beyond = config.retention_bytes != UNLIMITED and behind >= config.retention_bytes
                if not (is_old or is_beyond):
                    return False
            behind += entry.ref.length
        return True

    def noted(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        """Check that a note of a log start is true, whenever it arrives."""
        start = self.log_start_at(key, seen_ms - EPOCH_MS + CLOCK_SKEW_MS)
        expect(offset <= start, f"{offset} was noted as log start of {key} at {seen_ms}, when it was {start}")

    def page_deleted(self, key: PartitionKey, end_offset: Offset) -> None:
        """Check that no reader can still read from the deleted page."""
        settled = self._is_settled(key, end_offset)
        expect(settled, f"the page of {key} up to {end_offset} was deleted, where a reader may be reading")
        if key in self._state.stores.log.heads([key]):
            self._state.count("page deleted")
            self._log.check_index(key)

    def objects_deleted(self, label: str, segment_ids: Sequence[SegmentId]) -> None:
        """Check that every ref that ever named a deleted object is dead."""
        for segment_id in segment_ids:
            alive = [
                (str(key), end_offset)
                for key, end_offset in self._named.get(segment_id, ())
                if key.topic_id not in self._deleted_ms
                and not self._is_settled(key, end_offset)
                and self._retired_ms.get((key, end_offset, segment_id), float("inf"))
                > self._now_ms - FUNCTION_TIMEOUT_MS
            ]
            expect(not alive, f"segment {segment_id.hex()} was deleted from {label}, and {alive} names it")
            self._state.count("object swept")
            self.swept.add((label, segment_id))

    def topic_forgotten(self, topic_id: TopicId) -> None:
        """Check that the note of a deleted topic goes after its heads and pages."""
        left = self.left_of(topic_id)
        expect(not left, f"topic {topic_id} is forgotten, and it has left {left}")
        self._state.count("deleted topic forgotten")

    def left_of(self, topic_id: TopicId) -> list[str]:
        """Return the heads and pages that a deleted topic still has, also of partitions that it never had."""
        log = self._state.stores.log
        keys = [PartitionKey(topic_id, Partition(number)) for number in range(TOPIC_PARTITIONS_MAX)]
        heads = [f"head {key}" for key in log.heads(keys)]
        return heads + [f"page {key} {page.end_offset}" for key in keys for page in log.pages(key, Offset(0), 1_000)]

    def log_start_at(self, key: PartitionKey, at_ms: float) -> int:
        """Return the log start offset as it was then."""
        return max((offset for since_ms, offset in self._log_starts.get(key, ()) if since_ms <= at_ms), default=0)

    def _is_settled(self, key: PartitionKey, end_offset: int) -> bool:
        before_ms = self._now_ms - FUNCTION_TIMEOUT_MS
        if self._deleted_ms.get(key.topic_id, float("inf")) <= before_ms:
            return True
        return end_offset <= self.log_start_at(key, before_ms)

    @property
    def _now_ms(self) -> float:
        return self._state.scheduler.now_ms
