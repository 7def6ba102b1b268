"""A transport may offer more than the port.

It signs for wake-ups, tells how much a request may hold and who sends it, and has a clock.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol, runtime_checkable

from penstock.errors import NotConfiguredError
from penstock.system import wall_clock_ns
from penstock_core.limits import REQUEST_BYTES_MAX


@runtime_checkable
class EventSigner(Protocol):
    """A transport that can also sign for wake-ups. Without it a consumer waits by long polls."""

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """The headers of a signed `POST https://<host>/event` of AppSync Events. It may ask for fresh credentials."""
        ...


def event_signer(transport: object) -> EventSigner:
    """The transport, if it signs for wake-ups. Raises NotConfiguredError if not."""
    if not isinstance(transport, EventSigner):
        raise NotConfiguredError(f"{type(transport).__name__} signs nothing for wake-ups")
    return transport


def request_bytes_max_of(transport: object) -> int:
    """The bytes of a request that the transport carries. A transport that does not tell is bound as the API is."""
    return int(getattr(transport, "request_bytes_max", REQUEST_BYTES_MAX))


def wall_clock_ns_of(transport: object) -> Callable[[], int]:
    """The clock of a service that has one of its own, as penstock.testing has, else this machine's.

    It reads nanoseconds since 1970.
    """
    found: Callable[[], int] = getattr(transport, "wall_clock_ns", wall_clock_ns)
    return found


def reader_of(transport: object) -> Hashable:
    """The caller and the service of the transport: clients with the same reader may share answers.

    A transport that does not tell is a reader of its own, with all clients that were given it. It may be slow. Raises
    NotConfiguredError if the credentials cannot be refreshed.
    """
    found: Callable[[], Hashable] = getattr(transport, "reader", lambda: id(transport))
    return found()
