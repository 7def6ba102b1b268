"""A socket whose calls end by a deadline, however slowly the bytes come: http.client reads an answer from it."""

import io
import socket
from typing import Any

from penstock_service.ports.runtime import Clock

_SENT_AT_ONCE = 65_536  # bytes between two looks at the clock


class Deadline:
    """The end of all that one request may take. No step of it takes more than `step_ms`."""

    def __init__(self, clock: Clock, timeout_ms: float, step_ms: float | None = None) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + timeout_ms
        self._step_ms = timeout_ms if step_ms is None else step_ms

    def remaining_s(self) -> float:
        """The time that is left for a step. Raises TimeoutError if there is none."""
        remaining_ms = self._end_ms - self._clock.monotonic_ms()
        if remaining_ms <= 0:
            raise TimeoutError("the time for the request is over")
        return min(remaining_ms, self._step_ms) / 1_000


class TimedSocket:
    """What http.client needs of a socket. All its calls end by the deadline, however slowly the bytes come."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._deadline.remaining_s())
            rest = rest[self._socket.send(rest[:_SENT_AT_ONCE]) :]

    def recv_into(self, buffer: Any) -> int:
        self._socket.settimeout(self._deadline.remaining_s())
        return self._socket.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reading(self))

    def close(self) -> None:
        """Nothing: the answer's body may still be read. The caller closes the socket."""


class _Reading(io.RawIOBase):
    def __init__(self, sock: TimedSocket) -> None:
        super().__init__()
        self._socket = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._socket.recv_into(buffer)
