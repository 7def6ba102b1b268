"""The settings of a share consumer, with threads or for asyncio: defaults and bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

from penstock.arguments import check, check_callable, check_number, check_whole, checked_name
from penstock.encryption.values import Encryption, check_encryption
from penstock.model.share import ShareRecord
from penstock.retry import RetryPolicy
from penstock.schemas.serialization import DeserializerOption, Deserializers, Reading
from penstock_core.ids import parse_group_name
from penstock_core.limits import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX, MIB, SDK_FETCH_INTERVAL_MS_MAX

AcknowledgeMode = Literal["auto", "explicit"]
WaitMode = Literal["wake", "poll"]
# An AsyncShareConsumer awaits the callback's result if it can be awaited.
LockLostCallback = Callable[[list[ShareRecord]], object]

LOCK_MS_MIN, LOCK_MS_MAX = 1_000, 43_200_000
RECORDS_MAX = 500  # of one acquire


class ShareOptions(TypedDict, total=False):
    """The fields of `ShareSettings` as keyword arguments, for type checkers."""

    group_id: str
    acknowledge: AcknowledgeMode
    max_records: int
    max_bytes: int
    lock_ms: int | None
    hold_ms_max: int
    on_lock_lost: LockLostCallback | None
    client_id: str | None
    consumer_timeout_ms: int | None
    wait: WaitMode
    poll_wait_ms: int
    fetch_interval_ms: int
    drain_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    encryption: Encryption | None
    value_deserializer: DeserializerOption | None
    key_deserializer: DeserializerOption | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """All times are milliseconds. Raises InvalidError.

    Share consumers come and go without joining anything. Any number of them may work on one partition.

    Attributes:
        group_id: The share group. It must exist: `Admin.create_share_group` and `penstock share-groups create` make it.
        acknowledge: With "auto" a record is accepted when you ask for the next one, or `poll` again, and when you close
            the consumer; it is released when a `with` block ends in an exception. With "explicit" you call `accept`,
            `release` or `reject` for each record. `run` acknowledges by itself.
        max_records: The most records that one acquire takes, 500 at most. The consumer takes fewer where its handlers
            are slow: about as many as they handle in a second.
        max_bytes: About the most bytes that one acquire returns, as stored, 4 MiB at most.
        lock_ms: How long a record is locked before another consumer may have it, 1,000 to 43,200,000; by default the
            group's. The consumer renews the lock in the background while you work on the record.
        hold_ms_max: A lock is renewed for so long, by default an hour. Then the record comes to another consumer.
        on_lock_lost: Called with a list of records whose locks have ended or were taken over while you had them:
            other consumers may work on them too. It is called in the background, and must not block. For
            AsyncShareConsumer it may be a coroutine function. `locks_lost` counts these records.
        client_id: The name by which the service's log knows this process; by default host and process id.
        consumer_timeout_ms: Iteration ends when no record comes for so long; by default it waits for ever. `run` has
            `idle_ms` for that.
        wait: How the consumer waits while there is nothing for it. With "wake" the service wakes it over a WebSocket,
            and an idle consumer sends one request a minute. "poll" is always long polls (docs/performance/requests.md).
        poll_wait_ms: How long the service may wait for records before it answers a long poll, 10 to 20,000.
        fetch_interval_ms: The pause after an acquire that found nothing, while records come often: a record comes half
            of it later in the mean. After some of these the consumer sleeps until a wake-up. With 0 it waits in the
            service by long polls instead, which costs a function that hardly ever stops. 60,000 at most; it has no
            effect with `wait="poll"`.
        drain_ms: How long `run` waits for its handlers after `stop` or a signal. It then releases their records.
        retry_backoff_ms: The longest wait before the first retry. Waits have full jitter, and grow by a factor of two.
        retry_backoff_max_ms: The longest wait before any retry. A Retry-After of the service comes on top.
        encryption: Decrypt values that a producer has encrypted. Without the right to, or while KMS does not answer,
            the consumer gives the record back for 10 s, uncounted, and the call that waits for records
            raises the error. It rejects a value that was changed. Without the option, encrypted values come as they
            are stored.
        value_deserializer: Makes `record.value` of the bytes that a producer sent, as Consumer's option does. The
            consumer rejects a record that it cannot read: it goes to the dead-letter topic. While a registry does not
            answer, or refuses, the consumer gives the record back for 10 s, uncounted, and the call that waits for
            records raises the error.
        key_deserializer: As `value_deserializer`, for `record.key`.
    """

    group_id: str
    acknowledge: AcknowledgeMode = "auto"
    max_records: int = 100
    max_bytes: int = MIB
    lock_ms: int | None = None
    hold_ms_max: int = 3_600_000
    on_lock_lost: LockLostCallback | None = None
    client_id: str | None = None
    consumer_timeout_ms: int | None = None
    wait: WaitMode = "wake"
    poll_wait_ms: int = 500
    fetch_interval_ms: int = 200
    drain_ms: int = 20_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    encryption: Encryption | None = None
    value_deserializer: DeserializerOption | None = None
    key_deserializer: DeserializerOption | None = None

    def __post_init__(self) -> None:
        checked_name(parse_group_name, self.group_id)
        check(
            self.acknowledge in ("auto", "explicit"), f"acknowledge={self.acknowledge!r:.100}: use 'auto' or 'explicit'"
        )
        check(self.wait in ("wake", "poll"), f"wait={self.wait!r:.100}: use 'wake' or 'poll'")
        check_callable("on_lock_lost", self.on_lock_lost)
        check_encryption(self.encryption)
        Deserializers(self.value_deserializer, self.key_deserializer)
        text = self.client_id
        check(text is None or isinstance(text, str), f"client_id={text!r:.100}: give a string")
        self._check_range("max_records", 1, RECORDS_MAX)
        self._check_range("max_bytes", 1, FETCH_BYTES_MAX)
        self._check_range("poll_wait_ms", 10, FETCH_WAIT_MS_MAX)
        self._check_range("fetch_interval_ms", 0, SDK_FETCH_INTERVAL_MS_MAX)
        if self.lock_ms is not None:
            self._check_range("lock_ms", LOCK_MS_MIN, LOCK_MS_MAX)
        check_whole("hold_ms_max", self.hold_ms_max, 0)
        check_whole("drain_ms", self.drain_ms, 0)
        if self.consumer_timeout_ms is not None:
            check_number("consumer_timeout_ms", self.consumer_timeout_ms, 0)
        check_number("retry_backoff_ms", self.retry_backoff_ms, 1)
        check_number("retry_backoff_max_ms", self.retry_backoff_max_ms, int(self.retry_backoff_ms))

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        check_whole(name, value, least)
        check(value <= most, f"{name}={value}: use {least:,} to {most:,}")

    @property
    def reading(self) -> Reading:
        """The decryption and the deserializers of its records."""
        return Reading(self.encryption, Deserializers(self.value_deserializer, self.key_deserializer))

    @property
    def retry(self) -> RetryPolicy:
        """The waiting times between tries."""
        return RetryPolicy(backoff_ms=self.retry_backoff_ms, backoff_max_ms=self.retry_backoff_max_ms)
