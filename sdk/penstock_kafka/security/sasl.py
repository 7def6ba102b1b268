"""SaslHandshake and SaslAuthenticate, by the mechanism PLAIN (RFC 4616).

A client that fails waits a second for the answer, and its connection ends: guessing is slow.
"""

import asyncio

from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError
from penstock_kafka.security.users import Users

MECHANISM = "PLAIN"
_FAILURE_PAUSE_S = 1.0
_PARTS = 3  # authorization id, name, password


class Sasl:
    """Lets users in."""

    def __init__(self, users: Users, *, failure_pause_s: float = _FAILURE_PAUSE_S) -> None:
        self._users = users
        self._failure_pause_s = failure_pause_s

    async def handshake(self, call: Call) -> Answer:
        """SaslHandshake: the mechanism."""
        known = call.request.mechanism == MECHANISM
        return {
            "error_code": KafkaError.none if known else KafkaError.unsupported_sasl_mechanism,
            "mechanisms": [MECHANISM],
        }

    async def authenticate(self, call: Call) -> Answer:
        """SaslAuthenticate: the name and the password."""
        name = self._user(call.request.auth_bytes)
        if name is None or call.peer.principal is not None:
            await asyncio.sleep(self._failure_pause_s)
            call.peer.is_refused = True
            return {
                "error_code": KafkaError.sasl_authentication_failed,
                "error_message": "the name or the password is wrong",
            }
        call.peer.principal = name
        return {"error_code": KafkaError.none, "auth_bytes": b""}

    def _user(self, data: bytes) -> str | None:
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            return None
        if len(parts) != _PARTS or parts[0] not in ("", parts[1]):
            return None
        return parts[1] if self._users.has(parts[1], parts[2]) else None
