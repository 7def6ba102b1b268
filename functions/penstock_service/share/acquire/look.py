"""What one look through the partitions of a share group has found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock_core.ids import PartitionKey
from penstock_core.share.acquire import Grant
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.share.acknowledge import AckOutcome
from penstock_service.share.batches.read_batches import StoredBatch
from penstock_service.share.share_partitions import SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The locks that the acquire has in one partition, the state that shows them, and batches that were read before.

    `is_repeat`: another try of the acquire took them, and may have handed them over.
    """

    partition: SharePartition
    state: ShareState
    grants: Sequence[Grant]
    batches: Sequence[StoredBatch] = ()
    is_repeat: bool = False


@dataclass(slots=True, kw_only=True)
class Look:
    """What a look has found.

    `idle` are the partitions that had nothing. `is_complete`: these are all partitions of the group. `blocked`
    have fresh records, and no room for them in flight. `has_passed`: fresh records were finished without being handed
    out, and there are more. `is_spent`: the look has decoded as much as it may, so it has not seen everything.
    `available_ms` is the time until a record comes back. `passed_bytes` are those of the batches, by topic, that were
    read for records which the filter has finished.
    """

    taken: list[Taken] = field(default_factory=list)
    outcomes: list[tuple[int, AckOutcome]] = field(default_factory=list)
    woken: list[ShareKey] = field(default_factory=list)
    idle: list[SharePartition] = field(default_factory=list)
    is_complete: bool = False
    blocked: set[PartitionKey] = field(default_factory=set)
    is_alone: bool = False
    has_passed: bool = False
    is_spent: bool = False
    available_ms: int | None = None
    passed_bytes: Counter[str] = field(default_factory=Counter)

    def note_available(self, available_ms: int | None) -> None:
        """A record comes back after that time."""
        times = [each for each in (self.available_ms, available_ms) if each is not None]
        self.available_ms = min(times, default=None)
