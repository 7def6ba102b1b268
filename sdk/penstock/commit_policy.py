"""When a consumer commits what it has handed out, as `delivery` and auto commit say.

| delivery      | committed                                                                                       |
|---------------|-------------------------------------------------------------------------------------------------|
| at_least_once | by a poll each interval, before partitions go to others, and at the end (None: when asked only) |
| at_most_once  | by each poll, before it hands over                                                              |
| exactly_once  | by transactions only                                                                            |
"""

import logging
from collections.abc import Callable, Mapping

from penstock.arguments import check
from penstock.commits import Commits
from penstock.errors import LeaseLostError, UnavailableError
from penstock.fetch_buffer import FetchBuffer
from penstock.model import ConsumerRecord, TopicPartition
from penstock.record_run import RecordRun
from penstock.retry import NEVER_MS
from penstock.steps import Calls

_log = logging.getLogger("penstock.consumer")


class CommitPolicy:
    """`committed` is called after each commit, when idle partitions may go. `interval_ms` is of at_least_once."""

    def __init__(
        self,
        commits: Commits,
        buffer: FetchBuffer,
        run: RecordRun,
        *,
        is_at_most_once: bool,
        is_exactly_once: bool,
        interval_ms: int | None,
        committed: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.is_automatic = interval_ms is not None
        self.due_ms = NEVER_MS if interval_ms is None else now_ms() + interval_ms
        self._commits = commits
        self._buffer = buffer
        self._run = run
        self._is_at_most_once = is_at_most_once
        self._is_exactly_once = is_exactly_once
        self._interval_ms = interval_ms
        self._committed = committed
        self._now_ms = now_ms

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> Calls[None]:
        """Commit the positions of everything handed out, or the given offsets; those that have changed."""
        check(
            not self._is_exactly_once,
            "commit() with delivery='exactly_once': send the offsets in the transaction, by its send_offsets",
        )
        yield from self._commits.commit(self._run.positions() if offsets is None else offsets)
        self._committed()

    def commit_first(self, taken: list[ConsumerRecord]) -> Calls[bool]:
        """With at_most_once: commit what is about to be handed over, or take it back; false if a lease was lost."""
        if not self._is_at_most_once:
            return True
        try:
            yield from self.commit()
        except BaseException as error:
            firsts = {TopicPartition(record.topic, record.partition): record.offset for record in reversed(taken)}
            for partition, offset in firsts.items():
                self._buffer.seek(partition, offset)
            if isinstance(error, LeaseLostError):
                return False
            raise
        return True

    def commit_in_time(self) -> Calls[None]:
        """The commit that is due; what fails for now is for the next."""
        self.due_ms = self._now_ms() + (self._interval_ms or 0)
        try:
            yield from self.commit()
        except UnavailableError as error:
            _log.warning("offsets will be committed later: %s", error)
        except LeaseLostError as error:
            _log.info("%s", error)  # the rebalance tells the application

    def commit_last(self) -> Calls[None]:
        """What was handed out counts as dealt with: commit it, if auto commit is on."""
        try:
            if self.is_automatic:
                yield from self.commit()
        except LeaseLostError as error:
            _log.warning("the last commit came too late: %s", error)
