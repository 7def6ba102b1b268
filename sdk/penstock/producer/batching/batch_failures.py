"""The errors that batches end with."""

from penstock.errors import DeliveryTimeoutError, as_maybe_applied
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock_core.errors import PenstockError


def timed_out(batch: ProducerBatch, error: PenstockError | None, now_ms: int) -> PenstockError:
    """The error of a batch whose time to be delivered is over, with the last error that it met."""
    last = f"; the last error: {error}" if error else ""
    failure = DeliveryTimeoutError(
        f"{batch.record_count:,} records for {batch.topic}[{batch.partition}] were not delivered in "
        f"{now_ms - batch.created_ms:,} ms and {batch.failures} failed tries{last}",
        maybe_applied=batch.maybe_applied,
    )
    failure.__cause__ = error
    return failure


def final_error(batch: ProducerBatch, error: PenstockError) -> PenstockError:
    """The error of a batch that gets no other try. An earlier try may have been applied, though the last was not."""
    return as_maybe_applied(error) if batch.maybe_applied else error
