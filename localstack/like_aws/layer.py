"""The layer between the request guard and the emulator: it finds the service of a request, and its rules serve it.

`PUT /_like_aws` with the text of rules.py changes the rules of a running emulator. `GET /_like_aws` tells them, and
what they did since. With every rule off, a request passes untouched.
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from localstack.like_aws.api_limits import serve_api, serve_invoke
from localstack.like_aws.directory_buckets import DirectoryBucketFront, bucket_and_key
from localstack.like_aws.dynamodb import DynamoDbRules
from localstack.like_aws.exchange import (
    Answer,
    App,
    Receive,
    Request,
    Scope,
    Send,
    ask,
    header_of,
    read_request,
    send_answer,
)
from localstack.like_aws.latency import s3_latency_ms
from localstack.like_aws.rules import Rules, parse_rules
from localstack.like_aws.workers import Workers

CONTROL_PATH = "/_like_aws"
_API_PATH = "/_aws/execute-api/"
_INVOKE_PATH = "/2015-03-31/functions/"


@dataclass(slots=True)
class Layer:
    """An ASGI application: `app`, the emulator, under the rules that hold."""

    app: App
    rules: Rules = field(default_factory=Rules)
    counts: Counter[str] = field(default_factory=Counter)
    workers: Workers | None = None
    _dynamodb: DynamoDbRules = field(init=False)
    _buckets: DirectoryBucketFront = field(init=False)
    _latencies: Random = field(init=False)

    def __post_init__(self) -> None:
        self._begin(self.rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of ASGI."""
        serve = self._service(scope) if scope["type"] == "http" else None
        if serve is None:
            await self.app(scope, receive, send)
            return
        request = await read_request(scope, receive)
        if request is not None:
            await send_answer(send, await serve(request), is_head=request.method == "HEAD")

    def _service(self, scope: Scope) -> Any:
        """The rules that serve the request. None if none of them is on."""
        path, rules = str(scope["path"]), self.rules
        if path == CONTROL_PATH:
            return self._control
        if header_of(scope, "x-amz-target"):
            return self._serve_dynamodb if rules.item_locks.is_on or rules.throughput.is_on else None
        if path.startswith(_API_PATH):
            return self._serve_api if rules.payload_limits.is_on or rules.concurrency.is_on else None
        if path.startswith(_INVOKE_PATH) and path.endswith("/invocations"):
            return self._serve_invoke if rules.payload_limits.is_on or rules.concurrency.is_on else None
        if _is_s3(scope):
            return self._serve_s3 if rules.directory_buckets.is_on or rules.latency.is_on else None
        return None

    async def _serve_dynamodb(self, request: Request) -> Answer:
        return await self._dynamodb.serve(request, self.rules)

    async def _serve_api(self, request: Request) -> Answer:
        return await serve_api(self.app, request, self.rules, self.counts)

    async def _serve_invoke(self, request: Request) -> Answer:
        return await serve_invoke(self.app, request, self.rules, self.counts)

    async def _serve_s3(self, request: Request) -> Answer:
        rules = self.rules
        if rules.latency.is_on and request.method in ("GET", "PUT"):
            bucket, _ = bucket_and_key(request)
            drawn_ms = s3_latency_ms(rules.latency, self._latencies, bucket=bucket, is_put=request.method == "PUT")
            self.counts["latency: calls delayed"] += 1
            await asyncio.sleep(drawn_ms / 1_000)
        if rules.directory_buckets.is_on:
            return await self._buckets.serve(request, rules.directory_buckets)
        return await ask(self.app, request)

    async def _control(self, request: Request) -> Answer:
        if request.method == "PUT":
            try:
                self._begin(parse_rules(request.body.decode()))
            except ValueError as error:
                return _json_answer(400, {"message": str(error)})
        return _json_answer(200, {"rules": self.rules.to_json(), "counts": dict(self.counts)})

    def _begin(self, rules: Rules) -> None:
        """Makes these rules hold, with full buckets, no sessions and no counts."""
        self.rules = rules
        self.counts.clear()
        self._latencies = Random(f"latency {rules.seed}")
        self._dynamodb = DynamoDbRules(self.app, self.counts, Random(f"holds {rules.seed}"))
        self._buckets = DirectoryBucketFront(self.app, self.counts, Random(f"conflicts {rules.seed}"))
        if self.workers is not None:
            self.workers.apply(rules)


def around(app: App) -> Layer:
    """The layer around the emulator's application, with its rules around the emulator's workers. All rules are off."""
    from ministack.core import lambda_runtime
    from ministack.services import lambda_svc

    layer = Layer(app)
    layer.workers = Workers(lambda_runtime, lambda_svc, lambda: layer.rules, layer.counts)
    return layer


def _is_s3(scope: Scope) -> bool:
    signature = header_of(scope, "authorization")
    return "/s3/aws4_request" in signature or "/s3express/aws4_request" in signature


def _json_answer(status: int, found: dict[str, Any]) -> Answer:
    return Answer(status=status, headers=((b"content-type", b"application/json"),), body=json.dumps(found).encode())
