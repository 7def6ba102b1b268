"""The clients of a function in Lambda: direct ones for segments and for DynamoDB, botocore's for what is left.

A client of DynamoDB that sends each call once: JSON 1.0 over HTTPS.

It takes and gives what botocore's client takes and gives, items with bytes included. Its errors are those of
`driver_errors`. It checks no parameters: Penstock's adapters make them, and DynamoDB refuses wrong ones.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock_service.adapters.direct.connections import Connections, HttpAnswer
from penstock_service.adapters.direct.places import Keys, KeySource, Places, Signer
from penstock_service.adapters.direct.s3 import DirectS3
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, NoAnswerError
from penstock_service.adapters.on_demand import OnDemand
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.ports.runtime import Runtime

if TYPE_CHECKING:
    from penstock_service.adapters.drivers import Drivers


_SERVICE = "dynamodb"
_TARGET = "DynamoDB_20120810"


class DirectDrivers:
    """Drivers: the protocol documents its methods. `others` makes botocore's when something first needs them."""

    def __init__(
        self,
        places: Places,
        keys: Keys,
        runtime: Runtime,
        calls: StorageCalls,
        others: "Callable[[], Drivers]",
    ) -> None:
        self.region = places.region
        self._keys = keys
        self._others = OnDemand(others)
        self.dynamodb = DirectDynamoDb(places, self.keys, runtime.clock.now_ms, calls)
        self._s3 = DirectS3(places, self.keys, runtime, calls, lambda: self._others().s3())

    def s3(self) -> DirectS3:
        return self._s3

    def control(self, service: str) -> Any:
        return self._others().control(service)

    def keys(self) -> Keys:
        return self._keys

    def clients_of_role(self, role_arn: str) -> Callable[[str, Any], Any]:
        clients: Callable[[str, Any], Any] = self._others().clients_of_role(role_arn)
        return clients


class DirectDynamoDb:
    """DynamoDB in one region. `client.update_item(TableName=…, …)` sends UpdateItem, and so on for each operation.

    `calls` counts each call. Sends nothing by itself, and repeats nothing.
    """

    def __init__(self, places: Places, keys: KeySource, now_ms: Callable[[], int], calls: StorageCalls) -> None:
        self._keys = keys
        self._calls = calls
        self._signer = Signer(_SERVICE, places.region, now_ms)
        self._connections = Connections(places.origin(_SERVICE))

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._call, _operation(method))

    def close(self) -> None:
        """Closes the connections that no call uses."""
        self._connections.close()

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        body = json.dumps(arguments, default=_as_base64, separators=(",", ":")).encode()
        keys = self._keys()
        headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"{_TARGET}.{operation}"}
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        signed = self._signer.signed(keys, "POST", self._connections.host, "/", headers, sha256(body).hexdigest())
        self._calls.count(_SERVICE, operation)
        answer = self._connections.send("POST", "/", signed, body)
        return _content(answer, operation)


def _content(answer: HttpAnswer, operation: str) -> dict[str, Any]:
    expected = answer.headers.get("x-amz-crc32")
    if expected is not None and int(expected) != crc32(answer.body):
        raise NoAnswerError(
            f"Checksum crc32 failed, expected checksum {expected} did not match calculated checksum "
            f"{crc32(answer.body)}."
        )
    try:
        content = json.loads(answer.body, object_hook=_with_bytes) if answer.body else {}
    except ValueError as error:
        if answer.status < 300:
            raise NoAnswerError(f"the answer to {operation} is no JSON: {error}") from error
        content = {}
    if answer.status >= 300:
        raise _refusal(answer, content if isinstance(content, dict) else {}, operation)
    found: dict[str, Any] = content
    return found


def _refusal(answer: HttpAnswer, content: Mapping[str, Any], operation: str) -> AnsweredError:
    kind = str(content.get("__type") or answer.headers.get("x-amzn-errortype") or answer.status)
    code = kind.rpartition("#")[2].partition(":")[0]
    message = content.get("message") or content.get("Message") or ""
    item, reasons = content.get("Item"), content.get("CancellationReasons", ())
    return answer.refusal(operation, code, message, item=item, reasons=reasons)


def _as_base64(value: object) -> str:
    """The text that stands for bytes in a call. Raises TypeError for what is no value of an item."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no part of a call to DynamoDB")


def _with_bytes(value: dict[str, Any]) -> Any:
    """The object with bytes for base64. Only a value of an item has a text, or texts, under the one name B or BS."""
    if len(value) == 1:
        if isinstance(text := value.get("B"), str):
            return {"B": b64decode(text)}
        if isinstance(texts := value.get("BS"), list):
            return {"BS": [b64decode(text) for text in texts]}
    return value


@cache
def _operation(method: str) -> str:
    """DynamoDB's name of a method: `GetItem` of `get_item`."""
    return "".join(part.capitalize() for part in method.split("_"))
