"""The bounds of a producer's batches."""

from dataclasses import dataclass

from penstock.producer.batching.pacing import Pacing
from penstock.retry import RetryPolicy
from penstock_core.records.record_batch import Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """Bounds of batching. Bytes are counted before compression. Without `retry` each batch has one try."""

    linger_ms: int
    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    compression: Compression
    retry: RetryPolicy | None  # None: one try
    is_idempotent: bool = True
    is_adaptive: bool = False  # records without a key avoid slow partitions
    pacing: Pacing | None = None  # None: a throttled partition waits for its next try, and never rests
