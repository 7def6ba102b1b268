"""Kept-alive connections of a client that waits in threads: one request, one answer, no retry and no redirect."""

from collections.abc import Mapping

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from penstock.http.http_message import Response
from penstock.system import fork_count, wall_clock_ms
from penstock_core.limits import SDK_CONNECTIONS_MAX, SDK_IDLE_CONNECTION_MS_MAX

CONNECT_TIMEOUT_S = 5


class NoAnswerError(Exception):
    """Nothing answered. `maybe_sent` is false if not one byte of the request has left."""

    def __init__(self, why: str, *, maybe_sent: bool) -> None:
        super().__init__(why)
        self.maybe_sent = maybe_sent


class Connections:
    """A pool that several threads may use, and a child by fork() too.

    Connections that were idle for `SDK_IDLE_CONNECTION_MS_MAX` are not used again: after the freeze of a Lambda
    function they may be dead, and a request on a dead one waits for `timeout_s`. The wall clock tells, as the other one
    may stand still meanwhile.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pool = self._new_pool()
        self._forks = fork_count()
        self._used_at_ms = wall_clock_ms()

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The answer of any status. The body is sent without a copy. Raises NoAnswerError."""
        if self._forks != fork_count():  # the connections are the parent's: two processes would mix their answers
            self._pool, self._forks = self._new_pool(), fork_count()
        if wall_clock_ms() - self._used_at_ms > SDK_IDLE_CONNECTION_MS_MAX:
            self._pool.clear()
        try:
            answer = self._pool.request(method, url, headers=headers, body=body or None, redirect=False)
        except HTTPError as error:
            # These are raised before the first byte of the request leaves.
            maybe_sent = not isinstance(error, NewConnectionError | ConnectTimeoutError)
            raise NoAnswerError(str(error), maybe_sent=maybe_sent) from error
        finally:
            self._used_at_ms = wall_clock_ms()
        return Response(answer.status, answer.headers, answer.data)

    def close(self) -> None:
        """Close the pool. A later request opens connections again."""
        self._pool.clear()

    def _new_pool(self) -> urllib3.PoolManager:
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, self._timeout_s), read=self._timeout_s)
        return urllib3.PoolManager(maxsize=SDK_CONNECTIONS_MAX, timeout=timeout, retries=False)
