"""Who may use the console: the browser that its owner has opened, and pages of the console itself. Pure.

The link that the command prints holds a token that works once. The console swaps it for a cookie. A request needs the
cookie, a Host that is ours (another name that leads to 127.0.0.1 is an attack by DNS), and a browser that does not say
that the request comes from another site. A POST also needs our Origin, and the session's token in its form.

Background readings step aside while pages ask the service.

A reading sends one request after another. A page's request that meets one of them at the same function needs another
instance of that function, and a new instance takes a second or more. So the next request of a reading waits until no
page asks, or `CONSOLE_ASIDE_MS_MAX` at most.
"""

import hmac
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock_core.limits import CONSOLE_ASIDE_MS_MAX, CONSOLE_SESSIONS_MAX

_OWN_SITES = ("same-origin", "none")  # of Sec-Fetch-Site; "none" is a link that the user has opened or typed
# `no-referrer` would make browsers send `Origin: null` with our own forms.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Server": "penstock-console",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser that came by the link. Forms carry `form_token`."""

    secret: str
    form_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that the console does not answer: the reason, for the user."""

    status: int
    reason: str


LOST = Refusal(status=403, reason="This browser has no session, or the console was started anew since.")


class Guard:
    """The sessions of one console. `draw` gives secrets. Only the event loop's thread may use it."""

    def __init__(self, port: int, draw: Callable[[], str]) -> None:
        self.port = port
        self._draw = draw
        self._authorities = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._token = draw()
        self._sessions: dict[str, Session] = {}

    @property
    def link(self) -> str:
        """The URL that opens the console. It works once; then there is another."""
        return f"http://127.0.0.1:{self.port}/enter?token={self._token}"

    @property
    def cookie_name(self) -> str:
        """The cookie's name. Browsers send the cookies of one host to all its ports, so the name tells them apart."""
        return f"penstock_console_{self.port}"

    def enter(self, token: str) -> Session | None:
        """A new session, if the token is the one that was not used yet."""
        if not _equal(token, self._token):
            return None
        self._token = self._draw()
        session = Session(secret=self._draw(), form_token=self._draw())
        self._sessions[session.secret] = session
        while len(self._sessions) > CONSOLE_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        return session

    def check_host(self, headers: Mapping[str, str]) -> Refusal | None:
        """A refusal unless the request names this console."""
        if headers.get("Host", "") not in self._authorities:
            return Refusal(status=403, reason="The request names another host than this console.")
        return None

    def admit(self, method: str, headers: Mapping[str, str]) -> Session | Refusal:
        """The session of a request. `headers` look names up in any case."""
        refusal = self.check_host(headers)
        if refusal is not None:
            return refusal
        if headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
            return Refusal(status=403, reason="The request comes from another site.")
        if method != "GET" and headers.get("Origin") != f"http://{headers['Host']}":
            return Refusal(status=403, reason="The form comes from another site.")
        session = self._session(headers.get("Cookie", ""))
        if session is None:
            return LOST
        return session

    def session_of(self, headers: Mapping[str, str]) -> Session | None:
        """The session of a request; None if it has none."""
        return self._session(headers.get("Cookie", ""))

    def check_form(self, session: Session, token: str) -> Refusal | None:
        """A refusal unless the form is one that this session was shown."""
        if not _equal(token, session.form_token):
            return Refusal(status=403, reason="The form is none of this session: load its page again.")
        return None

    def _session(self, header: str) -> Session | None:
        try:
            found = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return None
        given = "" if found is None else found.value
        return next((each for each in self._sessions.values() if _equal(given, each.secret)), None)


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), secret.encode())


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
