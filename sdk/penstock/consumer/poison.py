"""A consumer raises at undecodable batches, skips them, or hands them to the application.

A value that it cannot decrypt is a batch of one offset here.
"""

import logging
from collections import Counter
from collections.abc import Callable

from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.listener import ConsumerSteps, Notice
from penstock.consumer.settings import OnUndecodable
from penstock.encryption.values import DataKeyMissing
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.errors import PenstockError
from penstock_core.records.undecodable import is_undecodable

_log = logging.getLogger("penstock.consumer")


class Poison:
    """Carries out the setting `on_undecodable`. `passed_over` counts the batches by partition."""

    def __init__(self, policy: OnUndecodable, buffer: FetchBuffer, learn: Callable[[bytes], object] | None) -> None:
        self._policy = policy
        self._learn = learn
        self._buffer = buffer
        self.passed_over: Counter[TopicPartition] = Counter()

    def take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int
    ) -> ConsumerSteps[list[ConsumerRecord] | None]:
        """The records of one of the buffer's take methods; None if it must be tried again.

        That is so when a batch was passed over, and when a data key was asked for.

        Raises the method's error by default, and what the application's function raises; then the batch comes again.
        """
        try:
            return take(max_records)
        except DataKeyMissing as missing:
            header, learn = missing.header, self._learn
            assert learn is not None  # only a cursor with an encryption raises it
            yield Notice(callback=lambda _: learn(header), partitions=[])
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
