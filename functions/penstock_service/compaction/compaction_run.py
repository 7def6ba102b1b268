"""One run of compaction over one partition, as the value that each of its steps takes."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_core.compaction.merging import CompactionSettings, CompactionState, is_old
from penstock_core.ids import PartitionKey
from penstock_core.limits import INDEX_RUN_PAGES
from penstock_core.log.index import Head, Page
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRun:
    """One run over one partition, from the head that it read first.

    `lease` is the run's lease and what earlier runs have cleaned. At `deadline_ms` of the monotonic clock the run ends
    between two swaps.
    """

    instance: Instance
    key: PartitionKey
    head: Head
    lease: CompactionState
    settings: CompactionSettings
    deadline_ms: float

    @property
    def is_time_up(self) -> bool:
        """Tells if the run has to end before its next step."""
        return self.instance.clock.monotonic_ms() >= self.deadline_ms

    def pages(self) -> Iterator[Page]:
        """The pages from the log start to the tail, read as the caller takes them: one query for each 64 pages."""
        return pages_forward(self.instance.stores.log, self.key, self.head, self.head.log_start_offset, INDEX_RUN_PAGES)

    def old_pages(self) -> Iterator[Page]:
        """`pages` up to the first one that is too young."""
        for page in self.pages():
            if not is_old(page, self.instance.clock.now_ms(), self.settings):
                return
            yield page
