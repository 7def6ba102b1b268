"""Finds out whether the application uses OpenTelemetry. If it does not, nothing of it is imported and nothing is done.

An application that uses it has imported it and set a provider before it makes a client: by itself, by
`opentelemetry-instrument`, or by a Lambda layer. The API's own providers are no more than stand-ins.
"""

import sys
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.system import wall_clock_ns
from penstock.telemetry.operations import Notes

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from penstock.telemetry.telemetry import Telemetry

_CLIENTS_REMEMBERED_MAX = 16
_API = ("opentelemetry.trace", "opentelemetry.metrics")


def find_telemetry(transport: object = None) -> "Telemetry | None":
    """The telemetry of a client with this transport; None if the application has no provider.

    A transport with a `url` tells the service's address. Looks into `sys.modules` if the application has not imported
    OpenTelemetry, and no further.
    """
    if not any(name in sys.modules for name in _API):
        return None
    from opentelemetry import metrics, trace

    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if _is_stand_in(tracers) and _is_stand_in(meters):
        return None
    return _telemetry(tracers, meters, str(getattr(transport, "url", "")))


def open_notes(transport: object, group: str | None) -> Notes | None:
    """The notes of a consumer of this group; None if the application has no provider."""
    telemetry = find_telemetry(transport)
    return None if telemetry is None else Notes(telemetry, group, wall_clock_ns)


def _is_stand_in(provider: object) -> bool:
    return type(provider).__module__.startswith(_API)


@lru_cache(maxsize=_CLIENTS_REMEMBERED_MAX)
def _telemetry(tracers: "TracerProvider", meters: "MeterProvider", url: str) -> "Telemetry":
    """One for all clients of a service: an instrument that is made twice would warn."""
    from penstock.telemetry.operations import SERVER_ADDRESS, SERVER_PORT
    from penstock.telemetry.telemetry import Telemetry

    server: dict[str, str | int] = {}
    parts = urlsplit(url)
    if parts.hostname:
        server[SERVER_ADDRESS] = parts.hostname
        server[SERVER_PORT] = parts.port or (80 if parts.scheme == "http" else 443)
    return Telemetry(tracers, meters, server)
