"""Compact one partition: merge its small refs into large ones of the archive tier, run by run (docs/adr/0013).

If its topic has `cleanup_policy=compact`, superfluous records go before (clean.py).

Each run is rewritten and swapped by itself, so a crash anywhere leaves what is done, and the next run goes on. A lease
keeps two of them from doing the same work; what keeps them from harm is that a swap needs its pages as they were read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock_broker.broker import Broker
from penstock_broker.clean import PassEnd, clean
from penstock_broker.rewrite_run import Rewritten, rewrite_run
from penstock_broker.walk_pages import walk_pages
from penstock_core.compaction import CompactionSettings, CompactionState, plan_runs
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.index import Head, Page
from penstock_core.keys import PartitionKey
from penstock_core.topic import TopicConfig

DEFAULTS = CompactionSettings()
_PAGES_PER_QUERY = 64


@dataclass(slots=True, kw_only=True)
class Compacted:
    """What one run over a partition did. `is_held`: somebody else is at it, nothing was done. `failures` are runs of
    pages that could not be rewritten now, `errors` why; `refused` those that somebody else had changed. A dry run
    counts `runs` and what is before, and changes nothing. `is_finished` unless the time was up before the end.
    `batches_left_whole` and `are_keys_left` are those of cleaning (PassEnd)."""

    topic: str
    partition: int
    runs: int = 0
    refs_before: int = 0
    refs_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    refused: int = 0
    failures: int = 0
    batches_left_whole: int = 0
    are_keys_left: bool = False
    errors: list[str] = field(default_factory=list)
    is_held: bool = False
    is_finished: bool = True

    def add(self, done: Rewritten) -> None:
        if not done.is_swapped:
            self.refused += 1
            return
        self.runs += 1
        self.refs_before += done.refs_before
        self.refs_after += done.refs_after
        self.bytes_before += done.bytes_before
        self.bytes_after += done.bytes_after


def compact(
    broker: Broker,
    topic_name: str,
    partition: int,
    settings: CompactionSettings = DEFAULTS,
    *,
    budget_ms: float = float("inf"),
    is_dry_run: bool = False,
) -> Compacted:
    """One run over the partition, ended between two swaps when the time is over.

    Costs two updates for the lease, a read of the head, a query for every 64 pages, and per run what `rewrite_run`
    costs. Raises UNKNOWN_TOPIC, UNKNOWN_PARTITION, and what reading the index raises.
    """
    topic, key = broker.directory.find_partition(topic_name, partition)
    done = Compacted(topic=topic_name, partition=partition)
    head = broker.log.heads([key]).get(key)
    if head is None:  # deleted since
        return done
    if is_dry_run:
        _count(done, plan_runs(_pages(broker, key, head), head, broker.clock.now_ms(), settings))
        return done
    now_ms = broker.clock.now_ms()
    state = broker.compaction.acquire(key, now_ms, now_ms + settings.lease_ms)
    if state is None:
        done.is_held = True
        return done
    deadline_ms = broker.clock.monotonic_ms() + budget_ms
    if topic.config.is_compacted:
        state = _clean(broker, key, head, state, topic.config, settings, done, deadline_ms)
    if done.is_finished and not (done.refused or done.failures):
        _merge(broker, key, head, state, settings, done, deadline_ms)
    release(broker, key, state)
    return done


def release(broker: Broker, key: PartitionKey, state: CompactionState) -> None:
    """Lets the next run begin at once. Without it, it begins when the lease has expired."""
    try:
        broker.compaction.save(key, CompactionState(epoch=state.epoch, deadline_ms=0, cleaned=state.cleaned))
    except PenstockError as error:
        broker.events.tell("compaction_lease_kept", partition=str(key), error=str(error))


def partitions_of(broker: Broker, topic_names: Sequence[str]) -> list[tuple[str, Partition]]:
    """All partitions of these topics, or of every topic if none is named. Raises UNKNOWN_TOPIC. One read per topic."""
    topics = [broker.directory.look_up(name) for name in topic_names] or broker.topics.list()
    return [(str(topic.name), partition) for topic in topics for partition in topic.all_partitions()]


def _clean(
    broker: Broker,
    key: PartitionKey,
    head: Head,
    state: CompactionState,
    config: TopicConfig,
    settings: CompactionSettings,
    done: Compacted,
    deadline_ms: float,
) -> CompactionState:
    """The state then."""

    def is_time_up() -> bool:
        done.is_finished = broker.clock.monotonic_ms() < deadline_ms
        return not done.is_finished

    try:
        for each in clean(broker, key, head, state, config, settings, is_time_up):
            if isinstance(each, PassEnd):
                done.batches_left_whole, done.are_keys_left = each.batches_left_whole, each.are_keys_left
                return each.state
            done.add(each)
    except PenstockError as error:
        if not _is_removed(broker, key, head.log_start_offset):
            done.failures += 1
            done.errors.append(str(error))
    return state


def _merge(
    broker: Broker,
    key: PartitionKey,
    head: Head,
    state: CompactionState,
    settings: CompactionSettings,
    done: Compacted,
    deadline_ms: float,
) -> None:
    for run in plan_runs(_pages(broker, key, head), head, broker.clock.now_ms(), settings):
        if broker.clock.monotonic_ms() >= deadline_ms:
            done.is_finished = False
            return
        try:
            done.add(rewrite_run(broker, key, state.epoch, run, settings))
        except PenstockError as error:
            if _is_removed(broker, key, run[0].base_offset):
                continue
            done.failures += 1
            done.errors.append(str(error))


def _is_removed(broker: Broker, key: PartitionKey, start: Offset) -> bool:
    """Whether retention, truncation or a deletion has removed some of what was read from `start` on."""
    try:
        head = broker.log.heads([key]).get(key)
    except PenstockError:
        return False
    return head is None or head.log_start_offset > start


def _pages(broker: Broker, key: PartitionKey, head: Head) -> Iterator[Page]:
    return walk_pages(broker.log, key, head, head.log_start_offset, _PAGES_PER_QUERY)


def _count(done: Compacted, runs: Iterator[tuple[Page, ...]]) -> None:
    for run in runs:
        done.runs += 1
        done.refs_before += sum(len(page.refs) for page in run)
        done.bytes_before += sum(ref.length for page in run for ref in page.refs)
