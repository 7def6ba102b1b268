"""The settings of a producer, threaded or asynchronous: defaults, what they must be, and what follows from them."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from penstock.arguments import check, check_callable, check_number, check_text, checked_name
from penstock.encryption.values import Encryption, check_encryption
from penstock.errors import as_sdk_error
from penstock.producer.batching.pacing import AccumulatorSettings, pacing_within
from penstock.producer.delivery import DeliveryCallback
from penstock.producer.key_hashing import Partitioner, SaltedKeys, Salting
from penstock.producer.transactional.transactional_state import TransactionSettings
from penstock.retry import RetryPolicy
from penstock.schemas.serialization import SerializerOption, Serializers
from penstock_core.errors import PenstockError
from penstock_core.ids import parse_transactional_id
from penstock_core.limits import BATCH_BYTES_MAX, EMBEDDED_REQUEST_BYTES_MAX, KIB, MIB, REQUEST_BYTES_MAX
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import ACKS_ALIASES, Acks, parse_acks

AcksName = Literal["none", "one", "quorum", "all", "leader", "1"]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
ACKS = tuple(acks.value for acks in Acks)
_TRANSACTIONAL_ACKS = ("quorum", "all")


class ProducerOptions(TypedDict, total=False):
    """The fields of `ProducerSettings` as keyword arguments, for type checkers."""

    acks: AcksName
    linger_ms: int
    batch_bytes: int
    enable_idempotence: bool
    transactional_id: str | None
    compression_type: CompressionName
    max_request_bytes: int
    buffer_bytes: int
    max_in_flight: int
    max_block_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    trace_records: bool
    adaptive_partitioning: bool
    salted_keys: SaltedKeys | None
    partitioner: Partitioner | None
    on_delivery: DeliveryCallback | None
    encryption: Encryption | None
    value_serializer: SerializerOption | None
    key_serializer: SerializerOption | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """All times are milliseconds. All sizes are bytes before compression. Raises InvalidError for a wrong value.

    Attributes:
        acks: How many zones hold the bytes before a send counts as delivered. Choose "one" (the first that answers),
            "quorum" (a majority), "all" (every zone in sync), or "none" (as "one", but without retries). You may also
            write "leader" or "1" for "one".
        linger_ms: How long a record may wait for other records to join its batch.
        batch_bytes: A batch of this size waits no longer. The topic's `max_batch_bytes` bounds it too.
        enable_idempotence: Number the records, so that the service stores a batch once although the producer sends it
            again after a lost answer. Without it, such a retry may store the records twice. After a send that failed
            with `maybe_applied` the record may be in the log; a new send of its value makes a new record.
        transactional_id: The name of this producer over restarts. It allows `transaction()`. Of several instances with
            the same id, only the one that began last can commit. Needs `acks` "quorum" or "all".
        compression_type: How batches are compressed: "none", "gzip", "snappy", "lz4" or "zstd".
        max_request_bytes: The most that one request carries, 4 MiB at most. It takes batches of up to 100 partitions,
            of any topics. Must be more than `batch_bytes`.
        buffer_bytes: The most that records may take while they wait or travel. A `send` that finds no room waits for
            `max_block_ms`.
        max_in_flight: How many requests may be on their way at once. A partition is in one of them at most, so a retry
            keeps its order.
        max_block_ms: How long `send` may wait for memory, and how long for the description of a topic.
        delivery_timeout_ms: The time from `send` until the producer gives up.
        retry_backoff_ms: The longest wait before the first retry. Waits have full jitter, and grow by a factor of two.
        retry_backoff_max_ms: The longest wait before any retry. A Retry-After of the service comes on top.
        metadata_max_age_ms: How long the description of a topic serves before the producer asks for it again. It asks
            when a record opens a batch, not when one joins a batch that is open.
        trace_records: If your program has a provider of OpenTelemetry, make a span for each record. Otherwise records
            carry the context of the span that is current at `send`, which costs less.
        adaptive_partitioning: Records without a key go less often to partitions whose deliveries take longer than those
            of the others. Records with a key are not touched.
        salted_keys: Hot keys whose records may lie in several partitions, such as `{b"whale": 8}`, or a function of
            topic and key that returns the number. The records keep their key, and lose its order. Refused for
            compacted topics.
        partitioner: A function of topic, key (None without one) and number of partitions that chooses the partition,
            from 0, where `send` names none. With None it leaves the choice to the producer. It must be quick, and may
            be asked again for a record: where the memory is full, and where the partition was closed. It runs under
            the producer's lock, so it may not call the producer.
        on_delivery: Called for every record as `on_delivery(error, metadata)`, by a sender thread or in the event
            loop. It must be quick: it holds up the requests that follow.
        encryption: Encrypt the values of records by keys of yours. Keys and headers stay plain. The first record of a
            topic waits until there is a data key, and then one record an hour does.
        value_serializer: Makes bytes of the values that you send: a function of one value, or an object such as
            `JsonSerde(schema)`, `AvroSerde(schema, registry=…)` and `ProtobufSerde(Order)` of penstock.schemas. A value
            that it refuses raises InvalidError from `send`. None stays a tombstone. Values are serialized first, and
            then encrypted.
        key_serializer: As `value_serializer`, for keys. The bytes decide the partition.
    """

    acks: AcksName = "quorum"
    linger_ms: int = 5
    batch_bytes: int = 256 * KIB
    enable_idempotence: bool = True
    transactional_id: str | None = None
    compression_type: CompressionName = "zstd"
    max_request_bytes: int = REQUEST_BYTES_MAX
    buffer_bytes: int = 32 * MIB
    max_in_flight: int = 5
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    metadata_max_age_ms: int = 300_000
    trace_records: bool = True
    adaptive_partitioning: bool = True
    salted_keys: SaltedKeys | None = None
    partitioner: Partitioner | None = None
    on_delivery: DeliveryCallback | None = None
    encryption: Encryption | None = None
    value_serializer: SerializerOption | None = None
    key_serializer: SerializerOption | None = None

    def __post_init__(self) -> None:
        for name in ("batch_bytes", "max_request_bytes", "buffer_bytes", "max_in_flight", "retry_backoff_ms"):
            check_number(name, getattr(self, name), 1)
        for name in ("linger_ms", "max_block_ms", "delivery_timeout_ms", "metadata_max_age_ms"):
            check_number(name, getattr(self, name), 0)
        check_number("retry_backoff_max_ms", self.retry_backoff_max_ms, int(self.retry_backoff_ms))
        check_callable("on_delivery", self.on_delivery)
        check_encryption(self.encryption)
        Serializers(self.value_serializer, self.key_serializer)
        if self.salted_keys is not None:
            Salting(self.salted_keys)
            check(self.partitioner is None, "partitioner and salted_keys: give one of them, both choose partitions")
        check_callable("partitioner", self.partitioner)
        check_text("compression_type", self.compression_type)
        _compression(self.compression_type)
        self._check_acks()
        self._check_sizes()

    def _check_acks(self) -> None:
        is_known = isinstance(self.acks, str) and self.acks in (*ACKS, *ACKS_ALIASES)
        check(is_known, f"acks={self.acks!r:.100}: use one of {', '.join(ACKS)}")
        if self.transactional_id is not None:
            checked_name(parse_transactional_id, self.transactional_id)
            check(self.acks in _TRANSACTIONAL_ACKS, f"acks={self.acks!r}: transactions need 'quorum' or 'all'")

    def _check_sizes(self) -> None:
        check(self.batch_bytes <= BATCH_BYTES_MAX, f"batch_bytes={self.batch_bytes}: use 1 to {BATCH_BYTES_MAX}")
        check(
            self.batch_bytes < self.max_request_bytes <= EMBEDDED_REQUEST_BYTES_MAX,
            f"max_request_bytes={self.max_request_bytes}: use more than batch_bytes, and {REQUEST_BYTES_MAX} at most",
        )
        check(
            self.buffer_bytes >= self.batch_bytes,
            f"buffer_bytes={self.buffer_bytes}: use at least batch_bytes ({self.batch_bytes})",
        )

    def check_carrier(self, request_bytes_max: int) -> None:
        """Raises InvalidError if requests may become larger than the transport carries."""
        check(
            self.max_request_bytes <= request_bytes_max,
            f"max_request_bytes={self.max_request_bytes}: this transport carries {request_bytes_max}; "
            f"transport='embedded' carries {EMBEDDED_REQUEST_BYTES_MAX}",
        )

    @property
    def wire_acks(self) -> str:
        """`acks` by the name that requests carry."""
        return parse_acks(self.acks).value

    @property
    def retry(self) -> RetryPolicy:
        """The waiting times between tries."""
        return RetryPolicy(backoff_ms=self.retry_backoff_ms, backoff_max_ms=self.retry_backoff_max_ms)

    def accumulator(self) -> AccumulatorSettings:
        """The bounds of batching."""
        return AccumulatorSettings(
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_bytes,
            request_bytes=self.max_request_bytes,
            buffer_bytes=self.buffer_bytes,
            delivery_timeout_ms=self.delivery_timeout_ms,
            compression=_compression(self.compression_type),
            retry=None if self.acks == "none" else self.retry,
            is_idempotent=self.enable_idempotence,
            is_adaptive=self.adaptive_partitioning,
            pacing=pacing_within(self.retry_backoff_max_ms, self.delivery_timeout_ms),
            partitioner=self.partitioner,
        )

    def transactions(self) -> TransactionSettings | None:
        """The settings of transactions; None without a `transactional_id`."""
        if self.transactional_id is None:
            return None
        return TransactionSettings(
            transactional_id=self.transactional_id,
            acks=self.wire_acks,
            batch_bytes=self.batch_bytes,
            request_bytes=self.max_request_bytes,
            compression=_compression(self.compression_type),
        )


def _compression(name: str) -> Compression:
    try:
        return Compression.parse(name)
    except PenstockError as error:
        raise as_sdk_error(error) from None
