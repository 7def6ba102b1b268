"""Counts of a gateway, for its operator."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True, eq=False)
class Figures:
    """Counts since the start, by name of the API."""

    requests: Counter[str] = field(default_factory=Counter)
    request_ms: Counter[str] = field(default_factory=Counter)  # from a request's last byte to its answer
    connections: int = 0
    refused_connections: int = 0
    malformed_requests: int = 0
    stalled_connections: int = 0
    produced_bytes: int = 0
    fetched_bytes: int = 0
    produce_calls: int = 0
    fetch_calls: int = 0
