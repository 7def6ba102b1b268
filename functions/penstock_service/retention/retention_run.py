"""One run of retention: its bounds and counts, and the deletion of pages that all its parts share."""

from dataclasses import dataclass

from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import INDEX_EXPIRY_PAGES
from penstock_service.index.reader import pages_below
from penstock_service.instance.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRun:
    """A run stops at `deadline_ms` of the monotonic clock.

    `grace_ms` is the age at which a note of a log start, or of a deletion, is older than every reader.
    """

    instance: Instance
    grace_ms: int
    deadline_ms: float

    @property
    def is_time_up(self) -> bool:
        """Tells if the run has to end before its next step."""
        return self.instance.clock.monotonic_ms() >= self.deadline_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionResult:
    """The counts of one run. `is_finished` is false if the time was up before the run had been everywhere."""

    partitions: int = 0
    refs_expired: int = 0
    pages_deleted: int = 0
    topics_removed: int = 0
    partitions_retired: int = 0
    failures: int = 0
    is_finished: bool = True

    def plus(self, other: "RetentionResult") -> "RetentionResult":
        """The sum of both; finished if both are."""
        return RetentionResult(
            partitions=self.partitions + other.partitions,
            refs_expired=self.refs_expired + other.refs_expired,
            pages_deleted=self.pages_deleted + other.pages_deleted,
            topics_removed=self.topics_removed + other.topics_removed,
            partitions_retired=self.partitions_retired + other.partitions_retired,
            failures=self.failures + other.failures,
            is_finished=self.is_finished and other.is_finished,
        )


def delete_pages(run: RetentionRun, key: PartitionKey, below: Offset | None) -> tuple[int, bool]:
    """Deletes the pages that end at `below` or before it (None: all pages), oldest first.

    Gives how many it deleted, and whether those were all. One query for each 25 pages, and one delete for each page.
    """
    log = run.instance.stores.log
    pages = pages_below(log, key, below, INDEX_EXPIRY_PAGES)
    count = 0
    while not run.is_time_up:
        page = next(pages, None)
        if page is None:
            return count, True
        log.delete_page(key, page.end_offset)
        count += 1
    return count, False
