"""WakeUps on AppSync Events: a signed POST for each message, and a WebSocket for readers.

boto3 has no call for it, so this adapter signs by itself (AppSync developer guide, "Publish events via HTTP").
"""

import json
from hashlib import sha256
from urllib.parse import urlsplit

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.wake_up import WakeUpMessage
from penstock_service.adapters.direct.connections import Connections
from penstock_service.adapters.direct.places import KeySource, Signer
from penstock_service.adapters.dynamodb.driver_errors import DriverError
from penstock_service.adapters.system import SystemClock
from penstock_service.ports.push import WakeUpPlace

_PATH = "/event"
_SERVICE = "appsync"
_TIMEOUT_S = 1.0  # of a connection and of an answer: the append has long gone on without it


class AppSyncWakeUps:
    """WakeUps on the Event API with these hosts. Makes its connections at the first message.

    `endpoint_url` stands for the hosts where their names do not resolve, as on the local stack. Requests go there, with
    the host in their header. `keys` gives the keys of this moment.
    """

    def __init__(
        self,
        *,
        host: str,
        realtime_host: str,
        region: str,
        keys: KeySource,
        endpoint_url: str | None = None,
    ) -> None:
        self._keys = keys
        self._signer = Signer(_SERVICE, region, SystemClock().now_ms)
        self._connections = Connections(
            endpoint_url or f"https://{host}", connect_timeout_s=_TIMEOUT_S, read_timeout_s=_TIMEOUT_S, host=host
        )
        self.place: WakeUpPlace | None = WakeUpPlace(
            realtime_url=f"{_realtime_origin(endpoint_url, realtime_host)}{_PATH}/realtime",
            host=host,
            realtime_host=realtime_host,
        )

    def publish(self, message: WakeUpMessage) -> None:
        body = json.dumps({"channel": message.channel, "events": [message.event]}).encode()
        try:
            keys = self._keys()
            headers = {"content-type": "application/json"}
            if keys.token:
                headers["x-amz-security-token"] = keys.token
            signed = self._signer.signed(keys, "POST", self._connections.host, _PATH, headers, sha256(body).hexdigest())
            answer = self._connections.send("POST", _PATH, signed, body)
        except DriverError as error:
            raise _failure(message, str(error)) from error
        if answer.status != 200:
            raise _failure(message, f"{answer.status} {answer.body.decode(errors='replace'):.200}")
        failed = json.loads(answer.body).get("failed")
        if failed:
            raise _failure(message, f"{failed!s:.200}")


def _realtime_origin(endpoint_url: str | None, realtime_host: str) -> str:
    if endpoint_url is None:
        return f"wss://{realtime_host}"
    endpoint = urlsplit(endpoint_url)
    return f"{'wss' if endpoint.scheme == 'https' else 'ws'}://{endpoint.netloc}"


def _failure(message: WakeUpMessage, why: str) -> PenstockError:
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE, f"AppSync did not take the wake-up for {message.channel}: {why}"
    )
