"""Batches of a closed partition: their records go on in batches of other partitions.

A record's future and callback keep the batch that the record was appended to. That batch has its outcome once each of
the batches that took its records has one.
"""

from collections.abc import Sequence

from penstock.producer.producer_batch import ProducerBatch


class MovedBatches:
    """The batches whose records were moved, until the batches that took these records are finished."""

    def __init__(self) -> None:
        self._sources: dict[ProducerBatch, list[ProducerBatch]] = {}
        self._open: dict[ProducerBatch, int] = {}

    def note(self, source: ProducerBatch, places: Sequence[tuple[ProducerBatch, int]]) -> None:
        """The records of `source` have moved to these places, in their order."""
        source.places = tuple(places)
        takers = dict.fromkeys(batch for batch, _ in places)
        self._open[source] = len(takers)
        for each in takers:
            self._sources.setdefault(each, []).append(source)

    def finish(self, taker: ProducerBatch) -> list[ProducerBatch]:
        """The moved batches that are finished with this one."""
        finished = []
        for source in self._sources.pop(taker, ()):
            self._open[source] -= 1
            if not self._open[source]:
                del self._open[source]
                finished.append(source)
        return finished
