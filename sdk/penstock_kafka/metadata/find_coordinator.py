"""FindCoordinator: this gateway coordinates each group and each transactional id of its clients.

The state of groups and transactions is in the service, so any gateway can answer for any of them.
"""

from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError
from penstock_kafka.metadata.broker import broker
from penstock_kafka.settings import Settings

_BATCHED_VERSION = 4  # from here on a request has several keys
_KEY_TYPES = (0, 1)  # groups and transactions; key type 2 is a partition of a share group, which no client asks for


class FindCoordinator:
    """Answers with the gateway itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, call: Call) -> Answer:
        """The coordinator of each key."""
        key_type = getattr(call.request, "key_type", 0)
        found = self._found(is_known=key_type in _KEY_TYPES)
        if call.version < _BATCHED_VERSION:
            return found
        return {"coordinators": [{**found, "key": key} for key in call.request.coordinator_keys]}

    def _found(self, *, is_known: bool) -> Answer:
        if is_known:
            return {"error_code": KafkaError.none, "error_message": None, **broker(self._settings)}
        return {
            "error_code": KafkaError.invalid_request,
            "error_message": "the key is neither of a group nor of a transactional id",
            "node_id": -1,
            "host": "",
            "port": -1,
        }
