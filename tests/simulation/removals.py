"""What retention, truncation and the sweep may take away, held against what they do at each effect.

Nothing unexpired goes; pages and objects go only where nobody can still be reading: what lay below the log start for as
long as a function may run. `log_start_at` is the log start as it was at any time of the run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock_core.ids import Offset, Partition, SegmentId, TopicId, segment_time_ms
from penstock_core.keys import PartitionKey
from penstock_core.limits import TOPIC_PARTITIONS_MAX, UNLIMITED
from penstock_core.ref import LocatedRef, Ref
from penstock_core.topic import Topic, TopicConfig
from tests.history import format as history
from tests.simulation.instance import CLOCK_SKEW_MS, EPOCH_MS, FUNCTION_TIMEOUT_MS
from tests.simulation.violation import expect

if TYPE_CHECKING:
    from tests.simulation.truth import Appended
    from tests.simulation.world import World

# How old a setting may be that a raise of the log start went by: remembered 10 s, a run of 30 s, its write late.
_SETTING_AGE_MS_MAX = 70_000.0
_AHEAD_MS_MAX = 3_600_000


class Removals:
    """What was removed in one run, and when log starts rose and settings changed."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.swept: set[tuple[str, SegmentId]] = set()  # copies that are not there any more, by right
        self._log_starts: dict[PartitionKey, list[tuple[float, int]]] = {}
        self._configs: dict[TopicId, list[tuple[float, TopicConfig]]] = {}
        self._deleted_ms: dict[TopicId, float] = {}
        self._named: dict[SegmentId, list[tuple[PartitionKey, int]]] = {}  # with the end of each ref
        self._retired_ms: dict[tuple[PartitionKey, int, SegmentId], float] = {}

    def configured(self, topic: Topic) -> None:
        """The topic has these settings from now on."""
        self._configs.setdefault(topic.topic_id, []).append((self._now_ms, topic.config))

    def topic_deleted(self, topic_id: TopicId) -> None:
        self._deleted_ms.setdefault(topic_id, self._now_ms)

    def appended(self, key: PartitionKey, ref: Ref, end_offset: int) -> None:
        """A segment that a ref names from now on was not taken for garbage before."""
        self._named.setdefault(ref.segment_id, []).append((key, end_offset))
        gone = [label for label, segment_id in self.swept if segment_id == ref.segment_id]
        expect(not gone, f"{key} names segment {ref.segment_id.hex()}, which was swept from {gone} before")

    def retired(self, key: PartitionKey, located: LocatedRef) -> None:
        """The partition names this ref no more; those that read it may go on for as long as a function may run."""
        self._retired_ms[key, located.end_offset, located.ref.segment_id] = self._now_ms

    def stored(self, label: str, segment_id: SegmentId) -> None:
        self.swept.discard((label, segment_id))

    def raised(self, key: PartitionKey, offset: Offset) -> None:
        """A log start rises as far as an operator asked for, or over refs that are expired."""
        before = self.log_start_at(key, self._now_ms)
        if offset <= before:
            return
        where = (self._world.truth.names[key.topic_id], int(key.partition))
        if offset > self._world.claims.truncations.get(where, 0):
            self._world.count("log start raised by retention")
            entries = self._world.truth.appends.get(key, ())
            is_end = self._world.truth.merges.is_end(key, offset)
            expect(
                is_end or any(entry.end_offset == offset for entry in entries),
                f"log start of {key} cuts a ref at {offset}",
            )
            # A setting counts until another has replaced it, and then for as long as it may be remembered.
            configs = self._configs[key.topic_id]
            ends = [*(at_ms for at_ms, _ in configs[1:]), float("inf")]
            recent = [
                config
                for (_, config), end_ms in zip(configs, ends, strict=True)
                if end_ms >= self._now_ms - _SETTING_AGE_MS_MAX
            ]
            expect(
                any(self.is_expired(entries, before, offset, config, CLOCK_SKEW_MS) for config in recent),
                f"log start of {key} was raised from {before} to {offset}, over what is not expired: {recent}",
            )
        self._log_starts.setdefault(key, []).append((self._now_ms, offset))
        self._world.story.recorder.done("log starts", history.Function.TRUNCATE, [history.Truncate(where, offset)])

    def is_expired(
        self, entries: Sequence["Appended"], start: int, end: int, config: TopicConfig, skew_ms: float
    ) -> bool:
        """Whether all refs that end in `(start, end]` are expired by these settings."""
        if not config.is_expiring:
            return False
        behind = 0
        for entry in reversed(entries):
            if start < entry.end_offset <= end:
                age_ms = EPOCH_MS + self._now_ms + skew_ms - _written_ms(entry.ref)
                is_old = config.retention_ms != UNLIMITED and age_ms > config.retention_ms
                is_beyond = config.retention_bytes != UNLIMITED and behind >= config.retention_bytes
                if not (is_old or is_beyond):
                    return False
            behind += entry.ref.length
        return True

    def noted(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        """A note of a log start is true, whenever it arrives."""
        start = self.log_start_at(key, seen_ms - EPOCH_MS + CLOCK_SKEW_MS)
        expect(offset <= start, f"{offset} was noted as log start of {key} at {seen_ms}, when it was {start}")

    def page_deleted(self, key: PartitionKey, end_offset: Offset) -> None:
        """A page goes when nobody can read there any more."""
        settled = self._is_settled(key, end_offset)
        expect(settled, f"the page of {key} up to {end_offset} was deleted, where somebody may be reading")
        if key in self._world.stores.log.heads([key]):
            self._world.count("page deleted")
            self._world.truth.check_index(key)

    def objects_deleted(self, label: str, segment_ids: Sequence[SegmentId]) -> None:
        """An object goes when every ref that ever named it is dead."""
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
            self._world.count("object swept")
            self.swept.add((label, segment_id))

    def topic_forgotten(self, topic_id: TopicId) -> None:
        """The note of a deleted topic goes last."""
        left = self.left_of(topic_id)
        expect(not left, f"topic {topic_id} is forgotten, and it has left {left}")
        self._world.count("deleted topic forgotten")

    def left_of(self, topic_id: TopicId) -> list[str]:
        """Heads and pages of a topic without a name that are still there, also of partitions that it never had."""
        log = self._world.stores.log
        keys = [PartitionKey(topic_id, Partition(number)) for number in range(TOPIC_PARTITIONS_MAX)]
        heads = [f"head {key}" for key in log.heads(keys)]
        return heads + [f"page {key} {page.end_offset}" for key in keys for page in log.pages(key, Offset(0), 1_000)]

    def log_start_at(self, key: PartitionKey, at_ms: float) -> int:
        """The log start offset as it was then."""
        return max((offset for since_ms, offset in self._log_starts.get(key, ()) if since_ms <= at_ms), default=0)

    def _is_settled(self, key: PartitionKey, end_offset: int) -> bool:
        before_ms = self._now_ms - FUNCTION_TIMEOUT_MS
        if self._deleted_ms.get(key.topic_id, float("inf")) <= before_ms:
            return True
        return end_offset <= self.log_start_at(key, before_ms)

    @property
    def _now_ms(self) -> float:
        return self._world.scheduler.now_ms


def _written_ms(ref: Ref) -> int:
    stored_ms = segment_time_ms(ref.segment_id)
    return ref.max_timestamp_ms if 0 <= ref.max_timestamp_ms <= stored_ms + _AHEAD_MS_MAX else stored_ms
