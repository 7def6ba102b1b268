"""A consumer raises at undecodable batches, skips them, or hands them to the application."""

import logging
from collections import Counter
from collections.abc import Callable

from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.listener import ConsumerSteps, Notice
from penstock.consumer.settings import OnUndecodable
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.errors import PenstockError
from penstock_core.records.undecodable import is_undecodable

_log = logging.getLogger("penstock.consumer")


class Poison:
    """Carries out the setting `on_undecodable`. `passed_over` counts the batches by partition."""

    def __init__(self, policy: OnUndecodable, buffer: FetchBuffer) -> None:
        self._policy = policy
        self._buffer = buffer
        self.passed_over: Counter[TopicPartition] = Counter()

    def take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int
    ) -> ConsumerSteps[list[ConsumerRecord] | None]:
        """The records of one of the buffer's take methods; None if a batch was passed over instead.

        Raises the method's error by default, and what the application's function raises; then the batch comes again.
        """
        try:
            return take(max_records)
        except PenstockError as error:
            yield from self._pass_over(error)
        return None

    def _pass_over(self, error: PenstockError) -> ConsumerSteps[None]:
        """Go on behind the batch. A seek or a rebalance while the application's function runs decides otherwise."""
        policy = self._policy
        if policy == "raise" or not is_undecodable(error):
            raise error
        partition = TopicPartition(error.facts["topic"], error.facts["partition"])
        cursor = self._buffer.cursor(partition)
        batch, generation = cursor.undecodable_batch(error), cursor.generation
        if callable(policy):
            call = policy
            yield Notice(callback=lambda _: call(batch), partitions=[partition])
            if partition not in self._buffer.assignment() or self._buffer.cursor(partition) is not cursor:
                return
            if cursor.generation != generation:
                return
        else:
            _log.warning("skipped %d offsets: %s", batch.next_offset - batch.offset, error)
        cursor.pass_over(batch)
        self._buffer.wake_at_ms = 0  # there is room again
        self.passed_over[partition] += 1
