"""The settings of a consumer, threaded or asynchronous: defaults, what they must be, and what follows from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from penstock.arguments import check, check_callable, check_number, checked_name
from penstock.consumer.fetch_buffer import FetchSettings, OffsetReset
from penstock.consumer.listener import RebalanceCallback, RebalanceCallbacks
from penstock.encryption.values import Encryption, check_encryption
from penstock.errors import as_sdk_error
from penstock.group.group_calls import MemberSettings
from penstock.model import UndecodableBatch
from penstock.retry import RetryPolicy
from penstock.schemas.serialization import DeserializerOption, Deserializers, Reading
from penstock_core.errors import PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.groups.group import ASSIGNORS, GroupConfig, alter_group_config
from penstock_core.ids import parse_group_name
from penstock_core.limits import (
    CLIENT_ID_LENGTH_MAX,
    FETCH_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    MIB,
    SDK_FETCH_INTERVAL_MS_MAX,
    SDK_POLL_BYTES_DEFAULT_MAX,
)

DeliverySemantics = Literal["at_least_once", "at_most_once", "exactly_once"]
WaitMode = Literal["wake", "poll"]
AssignmentStrategy = Literal["sticky", "range", "round_robin"]
# An AsyncConsumer awaits the callback's result if it can be awaited.
OnUndecodable = Literal["raise", "skip"] | Callable[[UndecodableBatch], object]

MAX_POLL_INTERVAL_MS_DEFAULT = 300_000

# Options that mean nothing without a group.
_GROUP_OPTIONS = (
    "partition_assignment_strategy",
    "group_instance_id",
    "client_id",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "on_assigned",
    "on_revoked",
    "on_lost",
)
# The group's settings, by the names of the options that set them.
_GROUP_CONFIG = {
    "partition_assignment_strategy": "assignor",
    "session_timeout_ms": "session_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
}


class ConsumerOptions(TypedDict, total=False):
    """The fields of `ConsumerSettings` as keyword arguments, for type checkers."""

    group_id: str | None
    auto_offset_reset: OffsetReset
    delivery: DeliverySemantics
    partition_assignment_strategy: AssignmentStrategy | None
    group_instance_id: str | None
    client_id: str | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    max_poll_interval_ms: int | None
    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    on_lost: RebalanceCallback | None
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    on_undecodable: OnUndecodable
    filter: str | Mapping[str, Any] | None
    max_poll_records: int
    max_poll_bytes: int
    consumer_timeout_ms: int | None
    wait: WaitMode
    fetch_max_bytes: int
    fetch_wait_ms: int
    fetch_interval_ms: int
    buffer_bytes: int
    max_in_flight: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    encryption: Encryption | None
    value_deserializer: DeserializerOption | None
    key_deserializer: DeserializerOption | None
    skip_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """All times are milliseconds. All sizes are bytes as stored, that is, compressed. Raises InvalidError.

    In a group each partition belongs to one consumer at a time. The first `poll` or iteration joins the group. When a
    consumer comes or goes, the partitions that stay are read on. A partition moves when its owner next polls, after a
    commit of what the owner was handed. It moves at once if all of that is committed and there is no `on_revoked`.

    Attributes:
        group_id: The group whose offsets this consumer commits and starts from. Consumers that subscribe to topics
            under the same group share the partitions. With `assign()` there is no sharing: commits only rise, except
            after a seek, and the service refuses them where a member owns the partition.
        auto_offset_reset: Where to start without a committed offset, and where to go on if the offset no longer
            exists, or its topic was deleted and created anew: "earliest", "latest", or "none" (raise NoOffsetError).
            With a group, the start that "latest" gives is committed before the first record is returned. It
            reads partitions from their beginning that appear while it, or its group, reads.
            After a restore, a consumer that has read lost records goes on behind the jump, unless "none" is set.
        delivery: How often a record may come: "at_least_once" returns records, then commits them. "at_most_once"
            commits, then returns. With "exactly_once" transactions commit (`send_offsets`, penstock.Transformer) and
            `commit()` is refused.
        partition_assignment_strategy: How members share the partitions: "sticky", "range" or "round_robin". This,
            `session_timeout_ms` and `heartbeat_interval_ms` are settings of the group. The member that makes the group
            sets them; later members do not change them, but `Admin.alter_group` does.
        group_instance_id: The name of a static member. It stays in the group when it is closed, and its next process
            has the same partitions at once. If that does not come within the session, other members get them.
        client_id: The name by which operators see this process; by default host and process id.
        session_timeout_ms: A member that the service does not hear of for so long loses its partitions; by default
            45,000.
        heartbeat_interval_ms: The time between heartbeats, which go on in the background; by default 5,000. While a
            member gets no records and its group does not change, the time grows to a third of the session, at most to
            a minute. An idle member pays for these heartbeats (docs/performance/costs.md).
        max_poll_interval_ms: A consumer that is not polled for so long leaves the group, and joins again with its next
            poll; by default 300,000. It bounds how long a partition waits for its owner.
        on_assigned: Called with a list of partitions before their first record is returned. `poll`, iteration and
            `close` call this and the next two. They may call the consumer; for AsyncConsumer they may be coroutine
            functions.
        on_revoked: Called after the last commit, before other members get the partitions.
        on_lost: Called when other members may have the partitions already, or their topic was deleted. Nothing can be
            committed for them.
        enable_auto_commit: With "at_least_once", commit what was returned. A later `poll` or iteration does so, when
            you must have dealt with it, and `close` does; not when a `with` block ends in an exception.
        auto_commit_interval_ms: The time between two such commits. With "at_most_once" every `poll` commits.
        on_undecodable: What to do with a batch whose records cannot be read, though it is as its producer sent it:
            "raise" (the error has `next_offset` in its facts, and comes again until you seek), "skip" (log it, count it
            in `skipped_batches`, and go on behind it), or a function that takes the `UndecodableBatch`; the consumer
            goes on behind it when the function returns, and raises what it raises. After a crash the function may get
            the same batch again. For AsyncConsumer it may be a coroutine function.
        filter: An SNS filter policy over the records' headers, as JSON text or as the object that it holds, such as
            `{"type": ["order"], "amount": [{"numeric": [">", 100]}]}`. The service sends only the records that match.
            Positions, commits and lag move past the other records. All members of a group need the same filter: what
            one of them passes over and commits, no other reads.
        max_poll_records: The most records that one `poll` returns.
        max_poll_bytes: About the most bytes of keys, values and headers, without compression, that one `poll` returns;
            at least one record. Without it, a few KB that compress well could fill the memory.
        consumer_timeout_ms: Iteration ends when no record comes for so long; by default it waits for ever.
        wait: How the consumer waits at the end of its partitions. With "wake" the service tells it of new records over
            a WebSocket. An idle consumer then sends one fetch a minute, or looks by a heartbeat, so a lost wake-up
            delays records by a minute at most. Without a connection, and where the stage has no wake-ups, it uses long
            polls and tries again later.
            "poll" is always long polls: a record comes some milliseconds sooner, and each consumer pays for a function
            that never stops (docs/performance/requests.md).
        fetch_max_bytes: The most that one answer carries, 4 MiB at most.
        fetch_wait_ms: How long a long poll may wait for a record before the service answers, 20,000 at most.
        fetch_interval_ms: The pause between two fetches while records come: a record comes half of it later in the
            mean, and a lively consumer pays for five fetches a second at most. While it has more to read than one
            answer carries, it does not pause. After some fetches without records it sleeps until a wake-up. With 0 it
            waits in the service by long polls instead, which costs a function that hardly ever stops. 60,000 at most;
            it has no effect with `wait="poll"`. Consumers of one process that read the same partitions as the same
            caller share their fetches.
        buffer_bytes: The most that prefetched records may take.
        max_in_flight: How many requests may be on their way at once, while the consumer catches up.
        retry_backoff_ms: The longest wait before the first retry. Waits have full jitter, and grow by a factor of two.
        retry_backoff_max_ms: The longest wait before any retry. A Retry-After of the service comes on top.
        metadata_max_age_ms: How often a consumer of topics without a group looks for new partitions; by default
            every 5 minutes. While it waits for wake-ups, its fetches tell it without a further call.
        encryption: Decrypt values that a producer has encrypted, and take the header away that says so. Records that
            are not encrypted pass. A value that this consumer cannot decrypt, for want of the right or because it was
            changed, is treated as `on_undecodable` says: it is a batch of one offset then. Without the option,
            encrypted values come as they are stored.
        value_deserializer: Makes `record.value` of the bytes that a producer sent: a function of them, or an object
            such as `JsonSerde()`, `AvroSerde(registry=…)` and `ProtobufSerde(Order)` of penstock.schemas. A tombstone
            stays None. A record that it cannot read is treated as `on_undecodable` says: as a batch of one offset.
            While a registry does not answer, `poll` raises UnavailableError, and the record comes again. So it does
            when the registry refuses (AccessDeniedError), and for a schema that the registry lacks or nobody can parse
            (InvalidError): no record is skipped for these, whatever `on_undecodable` says.
        key_deserializer: As `value_deserializer`, for `record.key`.
        skip_expired: Do not return records whose time is over: they were sent with `expires_in_ms`. The consumer goes
            by its own clock when it returns a record, moves past the others, and counts them in `skipped_expired`. By
            default they come like all others.
    """

    group_id: str | None = None
    auto_offset_reset: OffsetReset = "earliest"
    delivery: DeliverySemantics = "at_least_once"
    partition_assignment_strategy: AssignmentStrategy | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int | None = None
    on_assigned: RebalanceCallback | None = None
    on_revoked: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    on_undecodable: OnUndecodable = "raise"
    filter: str | Mapping[str, Any] | None = None
    max_poll_records: int = 500
    max_poll_bytes: int = SDK_POLL_BYTES_DEFAULT_MAX
    consumer_timeout_ms: int | None = None
    wait: WaitMode = "wake"
    fetch_max_bytes: int = FETCH_BYTES_MAX
    fetch_wait_ms: int = 500
    fetch_interval_ms: int = 200
    buffer_bytes: int = 32 * MIB
    max_in_flight: int = 2
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    metadata_max_age_ms: int = 300_000
    encryption: Encryption | None = None
    value_deserializer: DeserializerOption | None = None
    key_deserializer: DeserializerOption | None = None
    skip_expired: bool = False

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_numbers()
        self._check_group()

    def _check_choices(self) -> None:
        check(
            self.auto_offset_reset in ("earliest", "latest", "none"),
            f"auto_offset_reset={self.auto_offset_reset!r}: use 'earliest', 'latest' or 'none'",
        )
        check(
            self.delivery in ("at_least_once", "at_most_once", "exactly_once"),
            f"delivery={self.delivery!r}: use 'at_least_once', 'at_most_once' or 'exactly_once'",
        )
        check(
            self.on_undecodable in ("raise", "skip") or callable(self.on_undecodable),
            f"on_undecodable={self.on_undecodable!r:.100}: use 'raise', 'skip' or a function of one UndecodableBatch",
        )
        if self.filter is not None:
            try:
                parse_filter(self.filter)
            except PenstockError as error:
                raise as_sdk_error(error) from None
        check(self.wait in ("wake", "poll"), f"wait={self.wait!r:.100}: use 'wake' or 'poll'")
        strategy = self.partition_assignment_strategy
        check(strategy in (None, *ASSIGNORS), f"partition_assignment_strategy={strategy!r}: use {', '.join(ASSIGNORS)}")
        for name in ("client_id", "group_instance_id"):
            text = getattr(self, name)
            check(text is None or isinstance(text, str), f"{name}={text!r:.100}: give a string")
        check(self.group_instance_id != "", "group_instance_id='': use 1 character or more")
        for name in ("on_assigned", "on_revoked", "on_lost"):
            check_callable(name, getattr(self, name))
        check_encryption(self.encryption)
        Deserializers(self.value_deserializer, self.key_deserializer)
        check(isinstance(self.skip_expired, bool), f"skip_expired={self.skip_expired!r:.100}: use True or False")

    def _check_numbers(self) -> None:
        for name in ("fetch_max_bytes", "buffer_bytes", "max_poll_records", "max_poll_bytes", "max_in_flight"):
            check_number(name, getattr(self, name), 1)
        check_number("retry_backoff_ms", self.retry_backoff_ms, 1)
        for name in ("fetch_wait_ms", "fetch_interval_ms", "auto_commit_interval_ms", "metadata_max_age_ms"):
            check_number(name, getattr(self, name), 0)
        check_number("retry_backoff_max_ms", self.retry_backoff_max_ms, int(self.retry_backoff_ms))
        interval_ms = self.fetch_interval_ms
        check(
            interval_ms <= SDK_FETCH_INTERVAL_MS_MAX,
            f"fetch_interval_ms={interval_ms}: use 0 to {SDK_FETCH_INTERVAL_MS_MAX}",
        )
        if self.max_poll_interval_ms is not None:
            check_number("max_poll_interval_ms", self.max_poll_interval_ms, 1)
        if self.consumer_timeout_ms is not None:
            check_number("consumer_timeout_ms", self.consumer_timeout_ms, 0)
        fetch_max_bytes, fetch_wait_ms = self.fetch_max_bytes, self.fetch_wait_ms
        check(fetch_max_bytes <= FETCH_BYTES_MAX, f"fetch_max_bytes={fetch_max_bytes}: use 1 to {FETCH_BYTES_MAX}")
        check(self.buffer_bytes >= fetch_max_bytes, f"buffer_bytes={self.buffer_bytes}: use at least fetch_max_bytes")
        check(fetch_wait_ms <= FETCH_WAIT_MS_MAX, f"fetch_wait_ms={fetch_wait_ms}: use 0 to {FETCH_WAIT_MS_MAX}")

    def _check_group(self) -> None:
        if self.group_id is None:
            check(self.delivery == "at_least_once", f"delivery={self.delivery!r} commits: give a group_id")
            for name in _GROUP_OPTIONS:
                is_given = getattr(self, name) is not None
                check(not is_given, f"{name} is for consumers of topics in a group: give topics and a group_id")
            return
        checked_name(parse_group_name, self.group_id)
        try:
            alter_group_config(GroupConfig(), self._group_config())
        except PenstockError as error:
            raise as_sdk_error(error) from None

    @property
    def commit_interval_ms(self) -> int | None:
        """The time between two commits that the consumer makes by itself; None if it makes none."""
        is_automatic = self.enable_auto_commit and self.group_id is not None and self.delivery == "at_least_once"
        return self.auto_commit_interval_ms if is_automatic else None

    @property
    def retry(self) -> RetryPolicy:
        """The waiting times between tries."""
        return RetryPolicy(backoff_ms=self.retry_backoff_ms, backoff_max_ms=self.retry_backoff_max_ms)

    @property
    def listener(self) -> RebalanceCallbacks:
        """The callbacks of rebalances."""
        return RebalanceCallbacks(assigned=self.on_assigned, revoked=self.on_revoked, lost=self.on_lost)

    @property
    def reading(self) -> Reading:
        """The decryption and the deserializers of its records."""
        return Reading(self.encryption, Deserializers(self.value_deserializer, self.key_deserializer))

    def fetch(self) -> FetchSettings:
        """The bounds of prefetching."""
        return FetchSettings(
            max_poll_bytes=self.max_poll_bytes,
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_wait_ms=self.fetch_wait_ms,
            fetch_interval_ms=self.fetch_interval_ms,
            buffer_bytes=self.buffer_bytes,
            max_in_flight=self.max_in_flight,
            offset_reset=self.auto_offset_reset,
            retry=self.retry,
            is_woken=self.wait == "wake",
            filter=None if self.filter is None else parse_filter(self.filter).text,
            reading=self.reading,
        )

    def member(self, member_id: str, process_name: str) -> MemberSettings | None:
        """The consumer as a member of its group; None without a group. `process_name` stands in for the `client_id`."""
        if self.group_id is None:
            return None
        return MemberSettings(
            member_id=member_id,
            instance_id=self.group_instance_id,
            client_id=(self.client_id or process_name)[:CLIENT_ID_LENGTH_MAX],
            config=self._group_config(),
            max_poll_interval_ms=self.max_poll_interval_ms or MAX_POLL_INTERVAL_MS_DEFAULT,
            retry=self.retry,
        )

    def _group_config(self) -> dict[str, Any]:
        given = {setting: getattr(self, name) for name, setting in _GROUP_CONFIG.items()}
        return {setting: value for setting, value in given.items() if value is not None}
