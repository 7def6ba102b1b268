"""WakeUps on AppSync Events: a signed POST for each message, and a WebSocket for readers.

boto3 has no call for it, so this adapter signs by itself (AppSync developer guide, "Publish events via HTTP").
"""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, HTTPClientError
from botocore.httpsession import URLLib3Session

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import STORAGE_CONNECTIONS_MAX
from penstock_core.log.wake_up import WakeUpMessage
from penstock_service.ports.wake_ups import WakeUpPlace

_PATH = "/event"
_SERVICE = "appsync"
# Headers and body leave in two parts. Without TCP_NODELAY, the second waits 40 ms for the first's acknowledgement.
_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
_TIMEOUT_S = 1.0  # of a connection and of an answer: the append has long gone on without it


class AppSyncWakeUps:
    """WakeUps on the Event API with these hosts. Makes its connections at the first message.

    `endpoint_url` stands for the hosts where their names do not resolve, as on the local stack. Requests go there, with
    the host in their header. `credentials` gives botocore's credentials of this moment, or None.
    """

    def __init__(
        self,
        *,
        host: str,
        realtime_host: str,
        region: str,
        credentials: Callable[[], Any],
        endpoint_url: str | None = None,
    ) -> None:
        self._host = host
        self._url = f"{endpoint_url or f'https://{host}'}{_PATH}"
        self._region = region
        self._credentials = credentials
        self._lock = threading.Lock()
        self._session: Any = None
        self.place: WakeUpPlace | None = WakeUpPlace(
            realtime_url=f"{_realtime_origin(endpoint_url, realtime_host)}{_PATH}/realtime",
            host=host,
            realtime_host=realtime_host,
        )

    def publish(self, message: WakeUpMessage) -> None:
        body = json.dumps({"channel": message.channel, "events": [message.event]}).encode()
        headers = {"host": self._host, "content-type": "application/json"}
        request = AWSRequest(method="POST", url=self._url, data=body, headers=headers)
        try:
            SigV4Auth(self._credentials(), _SERVICE, self._region).add_auth(request)
            answer = self._made().send(request.prepare())
        except (BotoCoreError, HTTPClientError) as error:
            raise _failure(message, str(error)) from error
        if answer.status_code != 200:
            raise _failure(message, f"{answer.status_code} {answer.text:.200}")
        failed = json.loads(answer.content).get("failed")
        if failed:
            raise _failure(message, f"{failed!s:.200}")

    def _made(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = URLLib3Session(
                    timeout=_TIMEOUT_S, max_pool_connections=STORAGE_CONNECTIONS_MAX, socket_options=_SOCKET_OPTIONS
                )
            return self._session


def _realtime_origin(endpoint_url: str | None, realtime_host: str) -> str:
    if endpoint_url is None:
        return f"wss://{realtime_host}"
    endpoint = urlsplit(endpoint_url)
    return f"{'wss' if endpoint.scheme == 'https' else 'ws'}://{endpoint.netloc}"


def _failure(message: WakeUpMessage, why: str) -> PenstockError:
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE, f"AppSync did not take the wake-up for {message.channel}: {why}"
    )
