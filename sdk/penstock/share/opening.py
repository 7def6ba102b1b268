"""The checks of a share consumer's arguments, and the core that it makes of its settings."""

import logging
from collections.abc import Callable

from penstock.arguments import check, check_callable, check_number, check_whole, checked_topic
from penstock.model.fields import settings_of
from penstock.model.share import Reject, Release, ShareRecord
from penstock.share.acknowledgements import Wish, release
from penstock.share.held_locks import Moment
from penstock.share.settings import ShareOptions, ShareSettings
from penstock.share.share_core import ShareCore
from penstock.system import NS_PER_MS, monotonic_ms, process_name, random_bytes
from penstock.telemetry.operations import Notes
from penstock_core.limits import CLIENT_ID_LENGTH_MAX
from penstock_core.share.share_state import RANDOM_BYTES, named_nonce

Handler = Callable[[ShareRecord], object]
_log = logging.getLogger("penstock.share")


def share_core(
    settings: ShareSettings, topics: tuple[str, ...], notes: Notes | None, wall_ns: Callable[[], int]
) -> ShareCore:
    """The core of a consumer, on this machine's clock and on `wall_ns`. Raises InvalidError for a topic's name."""
    consumer_id = (settings.client_id or process_name())[:CLIENT_ID_LENGTH_MAX]
    return ShareCore(
        settings,
        [checked_topic(topic) for topic in topics],
        consumer_id=consumer_id,
        now=lambda: Moment(monotonic_ms(), wall_ns() // NS_PER_MS),
        new_nonce=lambda: named_nonce(consumer_id, random_bytes(RANDOM_BYTES)),
        notes=notes,
    )


def checked_settings(options: ShareOptions) -> ShareSettings:
    """The settings of these options. Raises InvalidError, also without a `group_id`."""
    check("group_id" in options, "group_id: give the name of a share group")
    return settings_of(ShareSettings, "ShareConsumer", options)


def release_wish(delay_ms: int | None, reason: str, *, is_counted: bool) -> Wish:
    """A release. Raises InvalidError for a bad delay or reason."""
    return release(reason, delay_ms)._replace(is_uncounted=not is_counted)


def check_poll(max_records: int | None, timeout_ms: int) -> None:
    """Raises InvalidError for arguments that no poll may have."""
    if max_records is not None:
        check_whole("max_records", max_records, 1)
    check_number("timeout_ms", timeout_ms, 0)


def check_run(handler: Handler, concurrency: int, idle_ms: int | None) -> None:
    """Raises InvalidError for arguments that no run may have."""
    check(handler is not None, "handler=None: give a function of one ShareRecord")
    check_callable("handler", handler)
    check_whole("concurrency", concurrency, 1)
    if idle_ms is not None:
        check_whole("idle_ms", idle_ms, 1)


def log_failure(record: ShareRecord, error: BaseException | None) -> None:
    """A line for a handler that failed, with its traceback. A rejection is no failure, and a release tells its own."""
    if isinstance(error, Exception) and not isinstance(error, Reject | Release):
        _log.error(
            "the handler of offset %d of %s[%d] has failed in delivery %d: the record is released",
            record.offset,
            record.topic,
            record.partition,
            record.delivery_count,
            exc_info=error,
        )
