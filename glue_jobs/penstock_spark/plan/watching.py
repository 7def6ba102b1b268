"""Watches the partitions of a running stream with few reads.

A micro-batch costs one read of the heads (one call for each 100 of them), and its planning uses the same heads. The
watch remembers the list of partitions for 10 s, as the service's functions do, but looks it up again as soon as a head
is gone. If a look finds no new records, the watch waits before the next one: 50 ms at first, then twice as long each
time, at most 1 s. Without that, Spark would ask a hundred times a second. Both times are by the clock that shows more,
because a suspended machine may stop one of them.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_service.instance.caches import TTL_MS
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment
from penstock_spark.plan.options import ReadOptions
from penstock_spark.plan.planning import OffsetRange, clip_to_log, data_loss
from penstock_spark.plan.snapshot import (
    PartitionSnapshot,
    covers,
    find_partitions,
    snapshot_partitions,
    starting_offsets,
    take_snapshot,
)
from penstock_spark.plan.stream_offsets import (
    Extent,
    Position,
    Positions,
    ends_of,
    extents_of,
    next_positions,
    positions_ahead,
    positions_left_out,
    ranges_between,
    within,
)

IDLE_MS_MIN = 50  # the first wait after a look without news; far below a micro-batch's own time
IDLE_MS_MAX = 1_000  # bounds the delay of a record that ends a pause


class Watch:
    """One query's view of its partitions.

    Its role: it answers Spark's questions about offsets while the process runs.
    """

    def __init__(self, instance: Instance, options: ReadOptions) -> None:
        self._instance = instance
        self._options = options
        self._partitions: list[tuple[str, PartitionKey]] = []
        self._missing: list[PenstockError] = []
        self._partitions_found: Moment | None = None
        self._snapshots: list[PartitionSnapshot] | None = None
        self._target: list[Extent] | None = None
        self._empty_first: frozenset[Position] | None = None
        self._idle_at: frozenset[Position] = frozenset()
        self._idle_ms = 0.0
        self._idle_since: Moment | None = None

    def first_positions(self) -> list[Position]:
        """The positions at which the query begins, by its options.

        Raises as `take_snapshot` and `starting_offsets` do.
        """
        snapshots = take_snapshot(self._instance, self._options.subscription)
        offsets = starting_offsets(self._instance, self._options, snapshots)
        found = [
            Position(topic=each.topic, key=each.key, offset=offset)
            for each, offset in zip(snapshots, offsets, strict=True)
        ]
        # Spark does not store the start of the first micro-batch. After a crash in it, Spark asks for the latest again.
        self._empty_first = frozenset(found) if self._options.may_begin_at_latest else None
        return found

    def bound(self) -> None:
        """Fix the present ends as the target of the query. Later micro-batches stop there."""
        self._target = extents_of(self._look())

    def next_positions(self, start: Positions, offsets_max: int | None) -> Positions:
        """The end of the next micro-batch, at most `offsets_max` offsets after `start`.

        It is `start` itself if there is nothing new, and in the first micro-batch of a query that begins at the latest
        offsets. The rest raises unless the query goes on after data loss: OFFSET_OUT_OF_RANGE for partitions that are
        gone, UNKNOWN_TOPIC for named topics that do not exist, and INVALID_REQUEST for partitions outside the
        subscription.
        """
        now = Moment.now(self._instance.clock)
        is_first, self._empty_first = frozenset(start) == self._empty_first, None
        if is_first or (self._is_idle() and frozenset(start) == self._idle_at):
            return start
        snapshots = self._look()
        extents = extents_of(snapshots)
        found = next_positions(
            self._checked(start, snapshots),
            extents if self._target is None else within(extents, self._target),
            offsets_max=offsets_max,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
        if self._missing and self._options.fails_on_data_loss:
            raise self._missing[0]
        self._note_idle(now, start, found)
        return found

    def ends(self) -> Positions:
        """The ends of all partitions now, for a Spark that does not tell where the micro-batch starts.

        Raises UNKNOWN_TOPIC as `next_positions` does. `ranges` detects lost records later.
        """
        now, before = Moment.now(self._instance.clock), self.newest()
        if before is not None and self._is_idle():
            return before
        found = ends_of(extents_of(self._look()))
        if self._missing and self._options.fails_on_data_loss:
            raise self._missing[0]
        self._note_idle(now, before or (), found)
        return found

    def newest(self) -> list[Position] | None:
        """The ends of all partitions at the last look; None before the first look. Makes no call."""
        return None if self._snapshots is None else ends_of(extents_of(self._snapshots))

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """The ranges of a micro-batch, by the heads of the last look.

        Reads the heads that this look did not have, or had at a lower offset.
        """
        ahead, left_out = positions_ahead(start, end), positions_left_out(start, end)
        heads = {each.key: each.head for each in self._snapshots or ()}
        unknown = {each.key for each in ahead if each.key not in heads or heads[each.key].high_watermark < each.offset}
        unknown |= {each.key for each in left_out if each.key not in heads}
        if unknown:
            heads = {key: head for key, head in heads.items() if key not in unknown} | dict(
                self._instance.stores.log.heads(sorted(unknown))
            )
        fails = self._options.fails_on_data_loss
        return clip_to_log(ranges_between(heads, start, end, fails_on_data_loss=fails), fails_on_data_loss=fails)

    def _checked(self, start: Positions, snapshots: Sequence[PartitionSnapshot]) -> Positions:
        """`start`, with each position beyond its partition's end set back to that end.

        A position lies beyond the end if the log was restored from an older copy, or if the options say so. If the
        query `fails_on_data_loss`, such a position raises instead.
        """
        heads = {each.key: each.head for each in snapshots}
        checked: list[Position] = []
        for each in start:
            head = heads.get(each.key)
            end = each.offset if head is None else min(each.offset, head.high_watermark)
            if self._options.fails_on_data_loss:
                if head is None and not covers(self._options.subscription, each.topic, each.key.partition):
                    raise _unsubscribed(each)
                if end < each.offset:
                    raise data_loss(each.topic, each.key, end, each.offset, head)
            checked.append(replace(each, offset=end))
        return checked

    def _is_idle(self) -> bool:
        return self._idle_since is not None and self._idle_since.age_ms(self._instance.clock) < self._idle_ms

    def _note_idle(self, now: Moment, start: Positions, found: Positions) -> None:
        self._idle_at = frozenset(start)
        is_idle = frozenset(found) == self._idle_at
        self._idle_ms = min(IDLE_MS_MAX, max(IDLE_MS_MIN, 2 * self._idle_ms)) if is_idle else 0.0
        self._idle_since = now

    def _look(self) -> list[PartitionSnapshot]:
        found = self._partitions_found
        is_new = found is None or found.age_ms(self._instance.clock) >= TTL_MS
        if is_new:
            self._find_partitions()
        snapshots = snapshot_partitions(self._instance, self._partitions)
        if len(snapshots) < len(self._partitions) and not is_new:
            self._find_partitions()
            snapshots = snapshot_partitions(self._instance, self._partitions)
        self._snapshots = snapshots
        return snapshots

    def _find_partitions(self) -> None:
        now = Moment.now(self._instance.clock)
        self._partitions, self._missing = find_partitions(self._instance, self._options.subscription)
        self._partitions_found = now


def _unsubscribed(position: Position) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_REQUEST,
        f"partition {position.key.partition} of topic {position.topic!r} is in the query's checkpoint and not in its "
        "subscription: subscribe to it as before, use another checkpointLocation, or set the option "
        "failOnDataLoss=false to go on without it",
    )
