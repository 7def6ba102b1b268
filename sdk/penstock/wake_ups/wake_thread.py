"""The thread that keeps a Watch covered: connection.py decides, sockets do the I/O."""

import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

from penstock.http.client import Client
from penstock.http.connections import CONNECT_TIMEOUT_S
from penstock.http.http_message import HttpRequest
from penstock.http.steps import Wait, drive
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.connection import Effect, Open, Outcome, Read, Shut, Sign, WakeUps, Write
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.watch import Watch
from penstock.wake_ups.web_socket import LinkLostError
from penstock.workers.worker_threads import released, seconds_until

_log = logging.getLogger("penstock.wake_ups")

READ_BYTES = 65_536


class WakeThread:
    """Calls `woken` and `changed` under `lock`, which guards the watch. Call `wake` under the lock after a change.

    The thread starts when something is wanted for the first time: a consumer that never waits has none.
    """

    def __init__(
        self,
        watch: Watch,
        client: Client,
        woken: Callable[[WakeUp], None],
        *,
        lock: threading.Lock,
        changed: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._client = client
        self._lock = lock
        self._changed = changed
        self._wake_ups = WakeUps(watch, woken, now_ms=monotonic_ms, chance=random_fraction)
        self._seen = 0  # the version of the watch that the thread has been told of
        self._thread: threading.Thread | None = None
        self._bell: socket.socket | None = None  # a byte in it ends the thread's wait
        self._ear: socket.socket | None = None
        self._link: socket.socket | None = None

    def wake(self) -> None:
        """Tell the thread if what is wanted has changed."""
        if self._watch.version == self._seen:
            return
        self._seen = self._watch.version
        if self._thread is None and not self._watch.is_closed:
            self._ear, self._bell = socket.socketpair()
            self._ear.setblocking(False)
            self._bell.setblocking(False)
            self._thread = threading.Thread(target=self._run, name="penstock-wake-up", daemon=True)
            self._thread.start()
        elif self._bell is not None:
            with suppress(BlockingIOError):  # it is full of bytes that the thread has not heard yet
                self._bell.send(b"!")

    def join(self) -> None:
        """Wait until the thread ends: the watch must be closed, and `wake` called."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for each in (self._bell, self._ear):
            if each is not None:
                each.close()

    def _run(self) -> None:
        with self._lock:
            try:
                drive(self._wake_ups.run(), self._do)
            except Exception:  # the driver's edge: a defect must not leave the consumer waiting for ever
                _log.exception("wake-ups have failed in an unexpected way: the consumer waits by long polls")
                self._watch.lost()
                self._watch.hold_until_ms = 0
            self._changed()

    def _do(self, effect: Effect) -> Outcome:
        self._changed()
        with released(self._lock):
            if isinstance(effect, HttpRequest):
                return self._client.try_once(effect)
            if isinstance(effect, Sign):
                return self._client.event_headers(effect.host, effect.body.encode())
            if isinstance(effect, Open):
                self._open(effect)
            elif isinstance(effect, Write):
                assert self._link is not None
                self._link.sendall(effect.data)
            elif isinstance(effect, Shut):
                self._shut()
            else:
                return self._listen(effect)
            return None

    def _open(self, effect: Open) -> None:
        plain = socket.create_connection((effect.host, effect.port), CONNECT_TIMEOUT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._link = (
                ssl.create_default_context().wrap_socket(plain, server_hostname=effect.host) if effect.is_tls else plain
            )
        except BaseException:
            plain.close()
            raise

    def _shut(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _listen(self, effect: Read | Wait) -> bytes:
        """The next bytes of the connection, if there is one; none when the bell rings or the time is up."""
        assert self._ear is not None
        link = self._link if isinstance(effect, Read) else None
        if isinstance(link, ssl.SSLSocket) and link.pending():
            return link.recv(READ_BYTES)
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if link is not None:
                selector.register(link, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(seconds_until(effect.until_ms, monotonic_ms()))}
        if self._ear in ready:
            self._ear.recv(READ_BYTES)
        if link is None or link not in ready:
            return b""
        try:
            data = link.recv(READ_BYTES)
        except TimeoutError:  # a part of a TLS record: the rest will come, or silence ends the connection
            return b""
        if not data:
            raise LinkLostError("the other side has closed the connection")
        return data
