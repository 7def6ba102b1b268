"""Background readings step aside while pages ask the service.

A reading sends one request after another. A page's request that meets one of them at the same function needs another
instance of that function, and a new instance takes a second or more. So the next request of a reading waits until no
page asks, or `CONSOLE_ASIDE_MS_MAX` at most.
"""

import threading
from collections.abc import Mapping

from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock_core.limits import CONSOLE_ASIDE_MS_MAX


class RightOfWay:
    """The pages' calls under way. Several threads may use one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pages = 0

    def enter(self) -> None:
        """A page's call begins."""
        with self._changed:
            self._pages += 1

    def leave(self) -> None:
        """A page's call has ended."""
        with self._changed:
            self._pages -= 1
            self._changed.notify_all()

    def stand_aside(self, wait_ms: int = CONSOLE_ASIDE_MS_MAX) -> None:
        """Wait until no page's call is under way, `wait_ms` at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pages, wait_ms / 1_000)


class PageTransport:
    """A Transport of pages: what steps aside waits for its calls."""

    def __init__(self, inner: Transport, way: RightOfWay) -> None:
        self._inner = inner
        self._way = way

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request."""
        self._way.enter()
        try:
            return self._inner.call(method, path, query, headers, body)
        finally:
            self._way.leave()

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the inner transport cannot sign them."""
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()


class AsideTransport:
    """A Transport of background readings."""

    def __init__(self, inner: Transport, way: RightOfWay) -> None:
        self._inner = inner
        self._way = way

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request, once the pages have been answered."""
        self._way.stand_aside()
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()
