"""The parts of a system that a comparison needs: a place for records, and clients that send to it and read from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One of several clients. `threads` is how many threads of it call at once.

    `is_prompt` asks for the settings that are best for one record at a time.
    """

    number: int = 0
    of: int = 1
    threads: int = 1
    is_prompt: bool = False


class Client(Protocol):
    """A client of one process. `calls` counts the requests so far, None where a protocol has no requests."""

    chunk: int  # records that one `send` should have

    @property
    def calls(self) -> int | None: ...

    def send(self, values: Sequence[bytes]) -> None:
        """Returns when the client takes more records."""

    def flush(self) -> None:
        """Returns when all that was sent is acknowledged."""

    def receive(self) -> int:
        """Reads some records and acknowledges them, where the system has that. Returns 0 after about half a second."""

    def close(self) -> None: ...


class Rival(Protocol):
    """One system. It is passed to other processes, so it holds names and ports only."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads that may help a client."""

    def make(self) -> None:
        """Makes the topic, stream or queue."""

    def drop(self) -> None:
        """Removes it with its records."""

    def renamed(self, topic: str) -> "Rival":
        """The same system with another topic."""

    def through(self, port: int) -> "Rival":
        """The same system, called at another port of 127.0.0.1."""

    @property
    def port(self) -> int: ...

    def connect(self, seat: Seat) -> Client: ...
