"""Compact one partition: merge its small refs into large ones of the archive tier, swap by swap (docs/adr/0013).

If the topic has `cleanup_policy=compact`, the run removes superseded records first (clean.py). A run of `tier` also
moves the refs of the tail, last (move_tail.py).

Each row of pages is rewritten and swapped alone. So a crash leaves every finished swap in place, and the next run goes
on behind it. A lease keeps two runs from doing the same work. It is not what keeps the data safe: a swap succeeds only
if its pages are still as the run has read them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock_core.compaction.merging import CompactionSettings, CompactionState, is_mergeable, plan_runs, zonal_bytes
from penstock_core.errors import Category, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import STALE_MS
from penstock_core.log.index import Page
from penstock_core.log.ref import stored_bytes
from penstock_core.log.topic import Topic
from penstock_service.compaction.clean import Admission, Dirt, PassCutShort, PassEnd, always, clean
from penstock_service.compaction.move_tail import move_tail, roll_old_tail, stale_bytes
from penstock_service.compaction.rewrite_run import CompactionRun, RewriteResult, rewrite_run
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex

DEFAULTS = CompactionSettings()
_NO_LEASE = CompactionState(epoch=0, deadline_ms=0)  # of a dry run, which swaps nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The counts of one run over one partition.

    `runs` counts the rows of pages that were swapped, and a tail that was moved (move_tail.py). The refs and bytes are
    those of these. A dry run counts the rows that it would swap. `refused` counts rows, or a tail, that another process
    had changed. `failures` counts what could not be read or written now, and `errors` tells why. `is_held`: another run
    holds the lease, so this one did nothing. `is_finished` is false if the time was up first. `bytes_stale` had lain in
    zones for `STALE_MS` or longer when the run met them: in pages, and in the tail if the run moves tails. `dirt`
    made a pass of cleaning due, and no pass has ended since. The rest comes from cleaning (PassEnd).
    """

    topic: str
    partition: int
    runs: int = 0
    refs_before: int = 0
    refs_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_stale: int = 0
    refused: int = 0
    failures: int = 0
    batches_left_whole: int = 0
    are_keys_left: bool = False
    dirt: Dirt | None = None
    errors: tuple[str, ...] = ()
    is_held: bool = False
    is_finished: bool = True

    def plus(self, done: RewriteResult) -> "CompactionResult":
        """The result with one more row of pages."""
        if not done.is_swapped:
            return replace(self, refused=self.refused + 1)
        return replace(
            self,
            runs=self.runs + 1,
            refs_before=self.refs_before + done.refs_before,
            refs_after=self.refs_after + done.refs_after,
            bytes_before=self.bytes_before + done.bytes_before,
            bytes_after=self.bytes_after + done.bytes_after,
        )

    def failed(self, error: PenstockError) -> "CompactionResult":
        """The result with one more failure."""
        return replace(self, failures=self.failures + 1, errors=(*self.errors, str(error)))


def compact(
    instance: Instance,
    topic_name: str,
    partition: int,
    settings: CompactionSettings = DEFAULTS,
    *,
    budget_ms: float = float("inf"),
    is_dry_run: bool = False,
    admits: Admission = always,
) -> CompactionResult:
    """One run over the partition. It ends between two swaps once `budget_ms` are over.

    `admits` decides about a pass of cleaning that is due.

    Costs two updates for the lease, a read of the head, a query for each 64 pages, and for each row of pages what
    `rewrite_run` costs. With `settings.zonal_ms_max`, it also costs what `roll_old_tail` and `move_tail` cost. Raises
    UNKNOWN_TOPIC, UNKNOWN_PARTITION, and what reading the index raises.
    """
    topic, key = instance.topic_cache.get_partition(topic_name, partition)
    result = CompactionResult(topic=topic_name, partition=partition)
    head = instance.stores.log.heads([key]).get(key)
    if head is None:  # deleted since
        return result
    run = CompactionRun(
        instance=instance,
        key=key,
        head=head,
        lease=_NO_LEASE,
        settings=settings,
        deadline_ms=instance.clock.monotonic_ms() + budget_ms,
    )
    if is_dry_run:
        return _planned(result, plan_runs(run.pages(), head, instance.clock.now_ms(), settings))
    now_ms = instance.clock.now_ms()
    lease = instance.stores.compaction.acquire(key, now_ms, now_ms + settings.lease_ms)
    if lease is None:
        return replace(result, is_held=True)
    run = replace(run, lease=lease)
    if settings.zonal_ms_max is not None:
        run = roll_old_tail(run)
    if settings.cleans and topic.config.is_compacted:
        result, run = _clean(run, topic, result, admits)
    if settings.merges and result.is_finished and not (result.refused or result.failures):
        result = _merge(run, result)
    if settings.zonal_ms_max is not None and result.is_finished:
        result = _move_tail(run, result)
    release(run)
    return result


def attempt_compact(
    instance: Instance,
    topic_name: str,
    partition: int,
    settings: CompactionSettings = DEFAULTS,
    *,
    budget_ms: float = float("inf"),
    is_dry_run: bool = False,
    admits: Admission = always,
) -> CompactionResult:
    """As `compact`, for a run over many partitions: an error becomes a failure, and a deleted topic needs nothing."""
    try:
        return compact(
            instance, topic_name, partition, settings, budget_ms=budget_ms, is_dry_run=is_dry_run, admits=admits
        )
    except PenstockError as error:
        nothing = CompactionResult(topic=topic_name, partition=partition)
        return nothing if error.code.category is Category.NOT_FOUND else nothing.failed(error)


def release(run: CompactionRun) -> None:
    """Ends the lease, so that the next run may begin at once. If this fails, it begins when the lease has expired.

    The lease ends one lease's time ago, in case the clock of the next run is behind. The item's expiry counts from its
    end, so the end is never long ago.
    """
    ended_ms = run.instance.clock.now_ms() - run.settings.lease_ms
    try:
        run.instance.stores.compaction.save(run.key, replace(run.lease, deadline_ms=ended_ms))
    except PenstockError as error:
        run.instance.telemetry.log("compaction_lease_kept", partition=str(run.key), error=str(error))


def partitions_of(instance: Instance, topic_names: Sequence[str]) -> list[tuple[str, Partition]]:
    """All partitions of these topics, or of every topic if you name none. One read per topic. Raises UNKNOWN_TOPIC."""
    topics = [instance.topic_cache.read_through(name) for name in topic_names] or instance.stores.topics.list()
    return [(str(topic.name), partition) for topic in topics for partition in topic.all_partitions()]


def in_turn(partitions: Iterable[tuple[str, Partition]], cursor: str | None) -> list[tuple[str, Partition]]:
    """The partitions in a circle from the one whose turn it is on. `cursor` is a `place_of`, or None for the first."""
    topic, _, partition = (cursor or "#0").rpartition("#")
    due = sorted(partitions)
    first = bisect_left(due, (topic, Partition(int(partition))))
    return due[first:] + due[:first]


def place_of(topic: str, partition: int) -> str:
    """The partition as text, for a cursor."""
    return f"{topic}#{partition}"


def _planned(result: CompactionResult, rows: Iterable[Sequence[Page]]) -> CompactionResult:
    for row in rows:
        refs = [ref for page in row for ref in page.refs]
        result = result.plus(RewriteResult(is_swapped=True, refs_before=len(refs), bytes_before=stored_bytes(refs)))
    return result


def _clean(
    run: CompactionRun, topic: Topic, result: CompactionResult, admits: Admission
) -> tuple[CompactionResult, CompactionRun]:
    """The result after cleaning, and the run with the end of the pass, if it came to its end."""
    try:
        for each in clean(run, topic, admits):
            match each:
                case Dirt():
                    result = replace(result, dirt=each)
                case RewriteResult():
                    result = result.plus(each)
                case PassCutShort():
                    result = replace(result, is_finished=False)
                case PassEnd():
                    run = replace(run, lease=each.lease)
                    result = replace(
                        result,
                        batches_left_whole=each.batches_left_whole,
                        are_keys_left=each.are_keys_left,
                        dirt=result.dirt if each.batches_left_whole else None,
                    )
    except PenstockError as error:
        if not _is_removed(run.instance.stores.log, run.key, run.head.log_start_offset):
            result = result.failed(error)
    return result, run


def _merge(run: CompactionRun, result: CompactionResult) -> CompactionResult:
    now_ms = run.instance.clock.now_ms()
    stale: list[int] = []

    def seen(page: Page) -> Page:
        if is_mergeable(page, run.head, now_ms, run.settings):
            stale.append(zonal_bytes(page.refs, now_ms, STALE_MS))
        return page

    result = _merge_rows(run, result, plan_runs(map(seen, run.pages()), run.head, now_ms, run.settings))
    return replace(result, bytes_stale=sum(stale))


def _merge_rows(run: CompactionRun, result: CompactionResult, rows: Iterable[Sequence[Page]]) -> CompactionResult:
    for row in rows:
        if run.is_time_up:
            return replace(result, is_finished=False)
        try:
            result = result.plus(rewrite_run(run, row))
        except PenstockError as error:
            if not _is_removed(run.instance.stores.log, run.key, row[0].base_offset):
                result = result.failed(error)
    return result


def _move_tail(run: CompactionRun, result: CompactionResult) -> CompactionResult:
    result = replace(result, bytes_stale=result.bytes_stale + stale_bytes(run))
    try:
        done = move_tail(run)
    except PenstockError as error:
        return (
            result if _is_removed(run.instance.stores.log, run.key, run.head.log_start_offset) else result.failed(error)
        )
    return result if done is None else result.plus(done)


def _is_removed(log: LogIndex, key: PartitionKey, start: Offset) -> bool:
    """Tells if retention, truncation or a deletion has removed a part of what the run read from `start` on."""
    try:
        head = log.heads([key]).get(key)
    except PenstockError:
        return False
    return head is None or head.log_start_offset > start
