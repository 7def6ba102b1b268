"""What a stream sees of its partitions while it runs, with as few reads as that takes.

A micro-batch costs one read of the heads (one call for 100 of them), which its planning goes by too. Which partitions
there are is remembered for 10 s, as functions remember it, but never past a head that is gone. A query that finds
nothing new looks again after as long as that has been so, at most a second: Spark asks a hundred times in one.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from penstock_broker.broker import Broker
from penstock_broker.directory import TTL_MS
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.keys import PartitionKey
from penstock_spark.options import ReadOptions
from penstock_spark.planning import OffsetRange, data_loss, keep_what_is_there
from penstock_spark.snapshot import Seen, covers, find_partitions, see, starting_offsets, take_snapshot
from penstock_spark.stream_offsets import (
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

IDLE_MS_MIN = 50
IDLE_MS_MAX = 1_000


class Watch:
    """One query's looks, for as long as its process runs."""

    def __init__(self, broker: Broker, options: ReadOptions) -> None:
        self._broker = broker
        self._options = options
        self._partitions: list[tuple[str, PartitionKey]] = []
        self._missing: list[PenstockError] = []
        self._partitions_until_ms = -inf
        self._seen: list[Seen] | None = None
        self._target: list[Extent] | None = None
        self._empty_first: frozenset[Position] | None = None
        self._idle_at: frozenset[Position] = frozenset()
        self._idle_ms = 0.0
        self._idle_until_ms = -inf

    def first_positions(self) -> list[Position]:
        """Where the options say that the query begins. Raises as `take_snapshot` and `starting_offsets`."""
        seen = take_snapshot(self._broker, self._options.subscription)
        offsets = starting_offsets(self._broker, self._options, seen)
        found = [
            Position(topic=each.topic, key=each.key, offset=offset) for each, offset in zip(seen, offsets, strict=True)
        ]
        # Spark does not keep where the first micro-batch begins: after a crash in it, it asks for the latest again.
        self._empty_first = frozenset(found) if self._options.may_begin_at_latest else None
        return found

    def bound(self) -> None:
        """From here on, nothing is there but what is there now."""
        self._target = extents_of(self._look())

    def next_positions(self, start: Positions, offsets_max: int | None) -> Positions:
        """Where the next micro-batch ends, of `offsets_max` offsets at most: at `start`, if there is nothing new, or if
        it is the first of a query that begins at the latest.

        Raises OFFSET_OUT_OF_RANGE for partitions that are gone, UNKNOWN_TOPIC for topics that are named and do not
        exist, and INVALID_REQUEST for those that are not subscribed to any more, unless the query goes on without.
        """
        now_ms = self._broker.clock.monotonic_ms()
        is_first, self._empty_first = frozenset(start) == self._empty_first, None
        if is_first or (now_ms < self._idle_until_ms and frozenset(start) == self._idle_at):
            return start
        seen = self._look()
        extents = extents_of(seen)
        found = next_positions(
            self._checked(start, seen),
            extents if self._target is None else within(extents, self._target),
            offsets_max=offsets_max,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
        if self._missing and self._options.fails_on_data_loss:
            raise self._missing[0]
        self._note_idle(now_ms, start, found)
        return found

    def ends(self) -> Positions:
        """Where a micro-batch ends that has all there is, for who does not say where it starts. Raises UNKNOWN_TOPIC as
        `next_positions`; what is lost is found out by `ranges`."""
        now_ms = self._broker.clock.monotonic_ms()
        before = self.newest()
        if before is not None and now_ms < self._idle_until_ms:
            return before
        found = ends_of(extents_of(self._look()))
        if self._missing and self._options.fails_on_data_loss:
            raise self._missing[0]
        self._note_idle(now_ms, before or (), found)
        return found

    def newest(self) -> list[Position] | None:
        """The ends of all partitions at the last look; None before the first. No read."""
        return None if self._seen is None else ends_of(extents_of(self._seen))

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """What lies between, by the heads of the last look; those that it did not have, or not so far, are read."""
        ahead, left_out = positions_ahead(start, end), positions_left_out(start, end)
        heads = {each.key: each.head for each in self._seen or ()}
        unknown = {each.key for each in ahead if each.key not in heads or heads[each.key].high_watermark < each.offset}
        unknown |= {each.key for each in left_out if each.key not in heads}
        if unknown:
            heads = {key: head for key, head in heads.items() if key not in unknown} | dict(
                self._broker.log.heads(sorted(unknown))
            )
        fails = self._options.fails_on_data_loss
        return keep_what_is_there(ranges_between(heads, start, end, fails_on_data_loss=fails), fails_on_data_loss=fails)

    def _checked(self, start: Positions, seen: Sequence[Seen]) -> Positions:
        """`start`, with positions ahead of their partition's end set back to it, unless that ends the query: the log
        was restored from an older copy, or it is where the options say to begin."""
        heads = {each.key: each.head for each in seen}
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

    def _note_idle(self, now_ms: float, start: Positions, found: Positions) -> None:
        self._idle_at = frozenset(start)
        is_idle = frozenset(found) == self._idle_at
        self._idle_ms = min(IDLE_MS_MAX, max(IDLE_MS_MIN, 2 * self._idle_ms)) if is_idle else 0.0
        self._idle_until_ms = now_ms + self._idle_ms

    def _look(self) -> list[Seen]:
        is_new = self._broker.clock.monotonic_ms() >= self._partitions_until_ms
        if is_new:
            self._find_partitions()
        seen = see(self._broker, self._partitions)
        if len(seen) < len(self._partitions) and not is_new:
            self._find_partitions()
            seen = see(self._broker, self._partitions)
        self._seen = seen
        return seen

    def _find_partitions(self) -> None:
        until_ms = self._broker.clock.monotonic_ms() + TTL_MS
        self._partitions, self._missing = find_partitions(self._broker, self._options.subscription)
        self._partitions_until_ms = until_ms


def _unsubscribed(position: Position) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_REQUEST,
        f"partition {position.key.partition} of topic {position.topic!r} is in the query's checkpoint and not in its "
        "subscription: subscribe to it as before, use another checkpointLocation, or go on without it by the option "
        "failOnDataLoss=false",
    )
