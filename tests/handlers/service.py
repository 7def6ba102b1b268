"""The service as its HTTP clients meet it, in memory, and requests to it."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from penstock_core.records import frame
from penstock_handlers.router import LOCAL_PRINCIPAL, dispatch
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance

CONTEXT = SimpleNamespace(
    function_name="penstock",
    function_version="1",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:eu-central-1:1:function:penstock",
    aws_request_id="request-1",
)  # as Lambda passes it
ERROR_FIELDS = {"code", "message", "maybe_applied"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, of the form that every error has."""
        assert self.status >= 400, self.body[:200]
        assert self.headers["Content-Type"] == "application/json"
        assert set(self.json) == {"error"}
        return checked_error(self.json["error"])


def checked_error(error: dict[str, Any]) -> dict[str, Any]:
    assert error.keys() >= ERROR_FIELDS
    assert isinstance(error["code"], str)
    assert isinstance(error["message"], str)
    assert len(error["message"]) > 10
    assert isinstance(error["maybe_applied"], bool)
    return error


@dataclass
class Service:
    instance: Instance = field(default_factory=memory_instance)

    def call(self, method: str, path: str, body: object = b"", **query: str) -> Answer:
        """A body that is not bytes goes as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, headers, content = dispatch(method, path, query, {}, data, self.instance)
        return Answer(status, headers, content)

    def create(self, name: str = "orders", partitions: int = 1, **config: object) -> None:
        answer = self.call("POST", "/v1/topics", {"name": name, "partitions": partitions, "config": config})
        assert answer.status == 201, answer.body

    def produce(self, *batches: tuple[str, int, bytes], **header: object) -> Answer:
        named = [{"topic": topic, "partition": number, "length": len(data)} for topic, number, data in batches]
        body = frame.encode({"batches": named, **header}, [data for _, _, data in batches])
        return self.call("POST", "/v1/produce", body)

    def fetch(self, *partitions: Mapping[str, object], **fields: object) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The results of a binary fetch, and the bytes of those that have some."""
        answer = self.call("POST", "/v1/fetch", {"partitions": partitions, **fields})
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Type"] == "application/vnd.penstock.batches"
        header, rest = frame.decode(answer.body)
        results: Any = header["partitions"]
        data, position = [], 0
        for result in results:
            end = position + result.get("length", 0)
            data.append(bytes(rest[position:end]))
            position = end
        assert position == len(rest)
        return results, data

    def send(self, *records: Mapping[str, object], topic: str = "orders", **query: str) -> Any:
        answer = self.call("POST", f"/v1/topics/{topic}/records", {"records": records}, **query)
        assert answer.status == 200, answer.body
        return answer.json["offsets"]

    def read(self, topic: str = "orders", partition: int = 0, **query: str) -> Any:
        answer = self.call("GET", f"/v1/topics/{topic}/partitions/{partition}/records", **query)
        assert answer.status == 200, answer.body
        return answer.json


def gateway_event(method: str, path: str, body: str | None = None, *, is_base64: bool = False) -> dict[str, Any]:
    """The event that API Gateway sends (HTTP API, payload format 2.0), with the fields that the functions read."""
    return {
        "version": "2.0",
        "routeKey": f"{method} {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "authorization": "AWS4-HMAC-SHA256 Credential=AKIASECRET"},
        "requestContext": {
            "authorizer": {"iam": {"userArn": LOCAL_PRINCIPAL}},
            "http": {"method": method, "path": path},
            "stage": "$default",
        },
        "body": body,
        "isBase64Encoded": is_base64,
    }


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
