"""The settings of a consumer, threaded or asynchronous: their defaults, what they must be, and what is made of them."""

from collections.abc import Iterable
from typing import Generic, Literal, TypeVar

from penstock.arguments import check, check_callable, check_number, checked_name
from penstock.consumer_core import ConsumerCore
from penstock.fetch_buffer import FetchSettings, OffsetReset
from penstock.group_settings import AssignmentStrategy, check_group_settings, checked_subscription, member_settings
from penstock.listener import ConsumerRebalanceListener, Listener, RebalanceCallback, listener_of
from penstock.retry import RetryPolicy
from penstock.system import monotonic_ms
from penstock_core.group import Subscription
from penstock_core.ids import parse_group_name
from penstock_core.limits import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX, MIB

Delivery = Literal["at_least_once", "at_most_once", "exactly_once"]
AnyTransport = TypeVar("AnyTransport")


class ConfiguredConsumer(Generic[AnyTransport]):
    """What `Consumer` and `AsyncConsumer` have in common."""

    def __init__(
        self,
        *topics: str,
        group_id: str | None = None,
        url: str | None = None,
        auto_offset_reset: OffsetReset = "earliest",
        delivery: Delivery = "at_least_once",
        partition_assignment_strategy: AssignmentStrategy | None = None,
        group_instance_id: str | None = None,
        client_id: str | None = None,
        session_timeout_ms: int | None = None,
        heartbeat_interval_ms: int | None = None,
        max_poll_interval_ms: int | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        max_poll_records: int = 500,
        consumer_timeout_ms: int | None = None,
        fetch_max_bytes: int = FETCH_BYTES_MAX,
        fetch_wait_ms: int = 500,
        buffer_bytes: int = 32 * MIB,
        max_in_flight: int = 2,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 5_000,
        metadata_max_age_ms: int = 60_000,
        region: str | None = None,
        transport: AnyTransport | None = None,
    ) -> None:
        """All partitions of `topics`, given here or to `subscribe()`; with a group, its share of them; or those given
        to `assign()`.

        `url`, `region` and `transport` are as for Producer. All times are milliseconds, all sizes bytes as stored.

        - `group_id`: commit and start again under this name. Consumers of `topics` that have the same share the
          partitions, each partition one consumer's at a time; `*` in a topic stands for any characters, and topics and
          partitions that come later are shared too. The first `poll` or iteration joins. Nobody else stops when one
          comes or goes: a partition moves when its owner next polls, after a commit of what was handed out; at once
          if all of it is committed and there is no `on_revoked`. `max_poll_interval_ms` bounds the wait. With
          `assign()` there is no sharing, and the last commit wins, but not against members.
        - `group_instance_id`: of a static member. It does not leave when closed, and its next process has the same
          partitions at once; if it does not come within the session, others get them.
        - `partition_assignment_strategy` ("sticky", "range", "round_robin"), `session_timeout_ms` (45,000) and
          `heartbeat_interval_ms` (5,000) are the group's: those of the member that makes it stay. A member that is not
          heard of for a session has lost its partitions. Heartbeats go on in the background, and failed ones again.
        - `max_poll_interval_ms` (300,000): a consumer that is not polled for so long leaves, and joins with its next
          poll. `client_id` is shown to operators.
        - `on_assigned`, `on_revoked`, `on_lost`: called by `poll`, iteration and `close` with a list of partitions:
          before the first record of them, before others get them (after the commit), and when they may be others'
          already, and nothing can be committed. They may call the consumer; coroutine functions for AsyncConsumer.
        - `auto_offset_reset`: where to start without a committed offset, and go on where the asked offset is no more:
          "earliest", "latest", or "none" (raise). Without a group, partitions that come later are read from their
          beginning.
        - `delivery`: "at_least_once" hands records over, then commits them; "at_most_once" commits, then hands over;
          "exactly_once" leaves commits to transactions (`send_offsets`; penstock.Transformer does it all), and refuses
          `commit()`.
        - `enable_auto_commit`, `auto_commit_interval_ms`: with at_least_once, what was handed out is committed from
          time to time by a later `poll` or iteration, when it must have been dealt with, and by `close`; not when a
          `with` block ends in an exception. With at_most_once every `poll` commits.
        - `max_poll_records`: of one `poll`. `consumer_timeout_ms`: iteration ends when no record comes for so long.
        - `fetch_max_bytes`: of one answer, 4 MiB at most. `buffer_bytes`: of all that is prefetched.
        - `fetch_wait_ms`: how long the service may wait for a record before it answers. An idle consumer pays for one
          request per wait.
        - `max_in_flight`: requests at once, while catching up.
        """
        check(
            auto_offset_reset in ("earliest", "latest", "none"),
            f"auto_offset_reset={auto_offset_reset!r}: use 'earliest', 'latest' or 'none'",
        )
        check(
            delivery in ("at_least_once", "at_most_once", "exactly_once"),
            f"delivery={delivery!r}: use 'at_least_once', 'at_most_once' or 'exactly_once'",
        )
        is_at_most_once, is_exactly_once = delivery == "at_most_once", delivery == "exactly_once"
        commits_by_itself = is_at_most_once or is_exactly_once
        check(group_id is not None or not commits_by_itself, f"delivery={delivery!r} commits: give a group_id")
        if group_id is not None:
            checked_name(parse_group_name, group_id)
        check(client_id is None or isinstance(client_id, str), f"client_id={client_id!r:.100}: give a string")
        check(
            group_instance_id is None or isinstance(group_instance_id, str),
            f"group_instance_id={group_instance_id!r:.100}: give a string",
        )
        if max_poll_interval_ms is not None:
            check_number("max_poll_interval_ms", max_poll_interval_ms, 1)
        check_number("fetch_max_bytes", fetch_max_bytes, 1)
        check_number("buffer_bytes", buffer_bytes, 1)
        check_number("fetch_wait_ms", fetch_wait_ms, 0)
        check_number("max_poll_records", max_poll_records, 1)
        check_number("max_in_flight", max_in_flight, 1)
        check_number("auto_commit_interval_ms", auto_commit_interval_ms, 0)
        check_number("metadata_max_age_ms", metadata_max_age_ms, 0)
        check_number("retry_backoff_ms", retry_backoff_ms, 1)
        check_number("retry_backoff_max_ms", retry_backoff_max_ms, int(retry_backoff_ms))
        if consumer_timeout_ms is not None:
            check_number("consumer_timeout_ms", consumer_timeout_ms, 0)
        for name, callback in (("on_assigned", on_assigned), ("on_revoked", on_revoked), ("on_lost", on_lost)):
            check_callable(name, callback)
        check(0 < fetch_max_bytes <= FETCH_BYTES_MAX, f"fetch_max_bytes={fetch_max_bytes}: use 1 to {FETCH_BYTES_MAX}")
        check(buffer_bytes >= fetch_max_bytes, f"buffer_bytes={buffer_bytes}: use at least fetch_max_bytes")
        check(0 <= fetch_wait_ms <= FETCH_WAIT_MS_MAX, f"fetch_wait_ms={fetch_wait_ms}: use 0 to {FETCH_WAIT_MS_MAX}")
        retry = RetryPolicy(backoff_ms=retry_backoff_ms, backoff_max_ms=retry_backoff_max_ms)
        settings = FetchSettings(
            fetch_max_bytes=fetch_max_bytes,
            fetch_wait_ms=fetch_wait_ms,
            buffer_bytes=buffer_bytes,
            max_in_flight=max_in_flight,
            offset_reset=auto_offset_reset,
            retry=retry,
        )
        given = {
            "partition_assignment_strategy": partition_assignment_strategy,
            "group_instance_id": group_instance_id,
            "client_id": client_id,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": heartbeat_interval_ms,
            "max_poll_interval_ms": max_poll_interval_ms,
            "on_assigned": on_assigned,
            "on_revoked": on_revoked,
            "on_lost": on_lost,
        }
        check_group_settings(group_id, given)
        self._is_in_group = group_id is not None
        subscription = checked_subscription(topics, is_in_group=self._is_in_group) if topics else None
        self._is_static = group_instance_id is not None
        is_auto = enable_auto_commit and group_id is not None and not commits_by_itself
        self._call_retry = retry
        self._max_in_flight = max_in_flight
        self._core = ConsumerCore(
            settings,
            group_id=group_id,
            member=member_settings(given, retry) if group_id is not None else None,
            listener=Listener(assigned=on_assigned, revoked=on_revoked, lost=on_lost),
            is_at_most_once=is_at_most_once,
            is_exactly_once=is_exactly_once,
            commit_interval_ms=auto_commit_interval_ms if is_auto else None,
            max_poll_records=max_poll_records,
            timeout_ms=consumer_timeout_ms,
            refresh_ms=metadata_max_age_ms,
            now_ms=monotonic_ms,
        )
        if subscription is not None:
            self._core.subscribe(subscription)
        self._open(url, region, transport)

    def subscription(self) -> list[str]:
        """The topics and patterns that are subscribed to, sorted."""
        return self._core.subscription()

    def _checked_subscription(
        self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None
    ) -> tuple[Subscription, Listener | None]:
        check(listener is None or self._is_in_group, f"listener={listener!r:.100}: give a group_id, or None")
        return checked_subscription(topics, is_in_group=self._is_in_group), listener_of(listener)

    def _open(self, url: str | None, region: str | None, transport: AnyTransport | None) -> None:
        """Make what drives the core. Opens no connection yet."""
        raise NotImplementedError
