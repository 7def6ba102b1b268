"""The handler of a share consumer's records, and the line that the log gets when it fails."""

import logging
from collections.abc import Callable

from penstock.share_model import Reject, ShareRecord

Handler = Callable[[ShareRecord], object]

_log = logging.getLogger("penstock.share")


def log_failure(record: ShareRecord, error: BaseException | None) -> None:
    """A line for a handler that failed, with its traceback. A rejection is no failure."""
    if isinstance(error, Exception) and not isinstance(error, Reject):
        _log.error(
            "the handler of offset %d of %s[%d] has failed in delivery %d: the record is released",
            record.offset,
            record.topic,
            record.partition,
            record.delivery_count,
            exc_info=error,
        )
