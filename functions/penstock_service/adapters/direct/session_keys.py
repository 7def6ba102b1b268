"""The keys of a directory bucket's session, which S3 gives for five minutes.

A minute before their end every call waits for new ones. In the minute before that, one call renews them, and the others
go on with those they have. If S3 gives no new ones then, that call goes on, too. The next try comes ten seconds later.
"""

import logging
import re
import threading
from collections.abc import Callable
from datetime import datetime

from penstock_service.adapters.direct.signature import Keys
from penstock_service.adapters.dynamodb.driver_errors import DriverError, NoAnswerError
from penstock_service.ports.runtime import Clock

_MUST_RENEW_S = 60
_MAY_RENEW_S = 120
_NEXT_TRY_S = 10  # after one that failed, while the held keys are good

_log = logging.getLogger(__name__)


class SessionKeys:
    """The keys of one session. `create` sends CreateSession, and gives keys and the second in which they end.

    Safe for use by several threads: one of them sends. Raises what `create` raises if the held keys are not good for a
    minute; the next call then tries again.
    """

    def __init__(self, create: Callable[[], tuple[Keys, float]], clock: Clock) -> None:
        self._create = create
        self._clock = clock
        self._renewing = threading.Lock()
        self._held: tuple[Keys, float] | None = None
        self._may_renew_s: float = _MAY_RENEW_S  # before the end; less after a try that failed

    def current(self) -> Keys:
        """Keys that are good for a minute at least. No call, or one CreateSession."""
        held = self._held
        left_s = self._left_s(held)
        if held is not None and left_s > self._may_renew_s:
            return held[0]
        if held is None or left_s <= _MUST_RENEW_S:
            with self._renewing:
                if self._left_s(self._held) <= _MUST_RENEW_S:
                    self._renew()
                assert self._held is not None
                return self._held[0]
        if self._renewing.acquire(blocking=False):
            try:
                self._renew_early()
            finally:
                self._renewing.release()
        return (self._held or held)[0]

    def _renew(self) -> None:
        self._held, self._may_renew_s = self._create(), _MAY_RENEW_S

    def _renew_early(self) -> None:
        try:
            if self._left_s(self._held) <= self._may_renew_s:
                self._renew()
        except DriverError as error:
            self._may_renew_s = max(_MUST_RENEW_S, self._left_s(self._held) - _NEXT_TRY_S)
            _log.warning("no new keys for a directory bucket yet; the held ones go on: %s", error)

    def _left_s(self, held: tuple[Keys, float] | None) -> float:
        return -1.0 if held is None else held[1] - self._clock.now_ms() / 1_000


def parse_session(body: bytes) -> tuple[Keys, float]:
    """The keys of CreateSession's answer, and the second in which they end. Raises NoAnswerError for another body."""
    try:
        ending = datetime.fromisoformat(_text(body, "Expiration"))
        keys = Keys(_text(body, "AccessKeyId"), _text(body, "SecretAccessKey"), _text(body, "SessionToken"))
    except ValueError as error:
        raise NoAnswerError(f"the answer to CreateSession holds no session: {error}") from error
    return keys, ending.timestamp()


def _text(body: bytes, name: str) -> str:
    found = re.search(f"<{name}>([^<]+)</{name}>", body.decode(errors="replace"))
    if found is None:
        raise ValueError(f"{name} is missing")
    return found[1].strip()
