"""The settings of a producer, threaded or asynchronous: their defaults, what they must be, and what is made of them."""

from typing import Generic, TypeVar

from penstock.accumulator import AccumulatorSettings
from penstock.arguments import check, check_callable, check_number, check_text, checked_name
from penstock.delivery import DeliveryCallback
from penstock.errors import InvalidError, as_sdk_error
from penstock.producer_core import ProducerCore
from penstock.retry import RetryPolicy
from penstock.system import choose, monotonic_ms
from penstock.transaction_core import TransactionalState, TransactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_transactional_id
from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB, REQUEST_BYTES_MAX
from penstock_core.record_batch import Compression

ACKS = ("none", "leader", "quorum", "all")

AnyTransport = TypeVar("AnyTransport")


class ConfiguredProducer(Generic[AnyTransport]):
    """What `Producer` and `AsyncProducer` have in common."""

    def __init__(
        self,
        url: str | None = None,
        *,
        acks: str = "quorum",
        linger_ms: int = 5,
        batch_bytes: int = 256 * KIB,
        enable_idempotence: bool = True,
        transactional_id: str | None = None,
        compression_type: str = "zstd",
        max_request_bytes: int = REQUEST_BYTES_MAX,
        buffer_bytes: int = 32 * MIB,
        max_in_flight: int = 5,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 5_000,
        metadata_max_age_ms: int = 300_000,
        on_delivery: DeliveryCallback | None = None,
        region: str | None = None,
        transport: AnyTransport | None = None,
    ) -> None:
        """`url` and `region` are found as penstock.configuration says if they are not given.

        `transport` replaces HTTP (penstock.testing). All times are milliseconds, all sizes bytes before compression.

        - `acks`: how many zones hold the bytes before a send counts as delivered: "leader" (the first), "quorum"
          (a majority), "all" (every zone in sync); "none" is as leader, without retries.
        - `linger_ms`: how long a record may wait for company. `batch_bytes`: a batch that is this full waits no longer
          (the topic's `max_batch_bytes` bounds it too). `max_request_bytes`: batches of up to 100 partitions, of any
          topics, travel in one request; 4 MiB at most.
        - `compression_type`: "none", "gzip", "snappy", "lz4" or "zstd".
        - `buffer_bytes`: what may wait or be on its way; send() then waits up to `max_block_ms` for room.
        - `max_in_flight`: requests at once. A partition is never in two, so that its order is kept through retries.
        - `delivery_timeout_ms`: from send() to giving up. Retries wait with full jitter, `retry_backoff_ms` at first
          and `retry_backoff_max_ms` at most, and longer where the service says so (Retry-After).
        - `enable_idempotence`: number the records, so that what is sent again after a lost answer is stored once, where
          it was the first time. Without it, such a retry may store its records twice. A send that fails with
          `maybe_applied` may be in the log all the same, and its value sent again is a new record. `acks="none"` never
          repeats.
        - `transactional_id`: who this producer is, over restarts: allows `transaction()`. Of several instances with the
          same id, the one that began last may commit. Needs `acks` "quorum" or "all".
        - `on_delivery`: called for every record as `on_delivery(error, metadata)`, by a sender thread or in the event
          loop; be quick there.
        """
        for name, number, least in (
            ("batch_bytes", batch_bytes, 1),
            ("max_request_bytes", max_request_bytes, 1),
            ("buffer_bytes", buffer_bytes, 1),
            ("max_block_ms", max_block_ms, 0),
            ("delivery_timeout_ms", delivery_timeout_ms, 0),
            ("metadata_max_age_ms", metadata_max_age_ms, 0),
        ):
            check_number(name, number, least)
        check_text("compression_type", compression_type)
        check_callable("on_delivery", on_delivery)
        check(acks in ACKS, f"acks={acks!r}: use one of {', '.join(ACKS)}")
        check_number("linger_ms", linger_ms, 0)
        check_number("retry_backoff_ms", retry_backoff_ms, 1)
        check_number("retry_backoff_max_ms", retry_backoff_max_ms, int(retry_backoff_ms))
        if transactional_id is not None:
            checked_name(parse_transactional_id, transactional_id)
        check(0 < batch_bytes <= BATCH_BYTES_MAX, f"batch_bytes={batch_bytes}: use 1 to {BATCH_BYTES_MAX}")
        check(
            batch_bytes < max_request_bytes <= REQUEST_BYTES_MAX,
            f"max_request_bytes={max_request_bytes}: use more than batch_bytes, and {REQUEST_BYTES_MAX} at most",
        )
        check(buffer_bytes >= batch_bytes, f"buffer_bytes={buffer_bytes}: use at least batch_bytes ({batch_bytes})")
        check_number("max_in_flight", max_in_flight, 1)
        check(
            transactional_id is None or acks in ("quorum", "all"),
            f"acks={acks!r}: transactions need 'quorum' or 'all'",
        )
        retry = RetryPolicy(backoff_ms=retry_backoff_ms, backoff_max_ms=retry_backoff_max_ms)
        settings = AccumulatorSettings(
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            request_bytes=max_request_bytes,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            compression=_compression(compression_type),
            retry=None if acks == "none" else retry,
            is_idempotent=enable_idempotence,
        )
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._call_retry = retry
        self._call_timeout_ms = max_block_ms
        self._on_delivery = on_delivery
        self._core = ProducerCore(
            settings,
            max_block_ms=max_block_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            now_ms=monotonic_ms,
            choose=choose,
        )
        self._transactional = None
        if transactional_id is not None:
            self._transactional = TransactionalState(
                TransactionSettings(
                    transactional_id=transactional_id,
                    acks=acks,
                    batch_bytes=batch_bytes,
                    request_bytes=max_request_bytes,
                    compression=settings.compression,
                )
            )
        self._open(url, region, transport)

    def _transactional_state(self) -> TransactionalState:
        if self._transactional is None:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST, "transaction() of a producer without transactional_id: give it one"
            )
        return self._transactional

    def _open(self, url: str | None, region: str | None, transport: AnyTransport | None) -> None:
        """Make what drives the core. Opens no connection yet."""
        raise NotImplementedError


def _compression(name: str) -> Compression:
    try:
        return Compression.parse(name)
    except PenstockError as error:
        raise as_sdk_error(error) from None
