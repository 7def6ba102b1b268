"""The layer between the request guard and the emulator: it finds the service of a request, and its rules serve it.

`PUT /_like_aws` with the text of rules.py changes the rules of a running emulator. `GET /_like_aws` tells them, and
what they did since. With every rule off, a request passes untouched.

The time that a call to S3 takes, drawn from distributions.

Sources: AWS says single-digit milliseconds for S3 Express One Zone (userguide/s3-express-one-zone.html). Quickwit's
beta test gives about 5 ms for it, up to 30 ms for a GET from S3 Standard and 80 ms as its common tail
(quickwit.io/blog/s3-express-speculations). WarpStream publishes 105 and 169 ms at p50 and p99 for a produce on S3
Express, batching included (warpstream.com/blog/warpstream-s3-express-one-zone-benchmark-and-total-cost-of-ownership).
The lognormal shape and the share of slow calls, 2 in 100, are our assumption.

What the HTTP API and Lambda's Invoke answer where a request, an event, an answer or the account is at its limit.

The HTTP API takes 10 MB and waits 30 s (apigateway/latest/developerguide/http-api-quotas.html). A larger request gets
413. After the 30 s it answers 503, as users report (github.com/anomalyco/sst/issues/2232), while the function goes on.
If Lambda rejects the invocation, it answers 500 (lambda/latest/dg/services-apigateway-errors.html). An event above
Lambda's 6 MB gets 413, as users report; AWS documents no status for it.
"""

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from math import exp, log
from random import Random
from typing import Any

from localstack.like_aws.aws_errors import api_message, lambda_error
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
from localstack.like_aws.rules import Latency, PayloadLimits, Rules, parse_rules
from localstack.like_aws.workers import EVENT_TOO_LARGE, Workers

CONTROL_PATH = "/_like_aws"
_API_PATH = "/_aws/execute-api/"
_INVOKE_PATH = "/2015-03-31/functions/"
_SLOW_SIGMA = 0.2
_THROTTLES = "TooManyRequestsException"
_TOO_LARGE = "Function.ResponseSizeTooLarge"


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


def s3_latency_ms(settings: Latency, chance: Random, *, bucket: str, is_put: bool) -> float:
    """The milliseconds of one call to the bucket."""
    is_express = re.search(settings.express_buckets, bucket) is not None
    if chance.random() < settings.slow_share:
        slow_ms = settings.express_slow_ms if is_express else settings.standard_slow_ms
        return _lognormal(chance, slow_ms, _SLOW_SIGMA)
    if is_express:
        median_ms = settings.express_put_ms if is_put else settings.express_get_ms
        return _lognormal(chance, median_ms, settings.express_sigma)
    median_ms = settings.standard_put_ms if is_put else settings.standard_get_ms
    return _lognormal(chance, median_ms, settings.standard_sigma)


def _lognormal(chance: Random, median: float, sigma: float) -> float:
    return exp(chance.normalvariate(log(median), sigma)) if median > 0 else 0.0


async def serve_api(app: App, request: Request, rules: Rules, counts: Counter[str]) -> Answer:
    """The answer of the HTTP API to a request."""
    limits = rules.payload_limits
    if limits.is_on and len(request.body) > limits.request_bytes:
        counts["payload_limits: requests refused"] += 1
        return api_message(413, "Request Entity Too Large")
    answer = await _in_time(app, request, limits)
    if answer is None:
        counts["payload_limits: requests out of time"] += 1
        return api_message(503, "Service Unavailable")
    told = _json_object(answer)
    if answer.status == 429 and told.get("__type") == EVENT_TOO_LARGE:
        return api_message(413, "Request Entity Too Large")
    if answer.status == 429 and told.get("__type") == _THROTTLES and rules.concurrency.is_on:
        counts["concurrency: invocations refused"] += 1
        return api_message(500, "Internal Server Error")
    if answer.status == 502 and told.get("errorType") == _TOO_LARGE:
        return api_message(500, "Internal Server Error")
    return answer


async def serve_invoke(app: App, request: Request, rules: Rules, counts: Counter[str]) -> Answer:
    """The answer of Lambda's Invoke."""
    limits = rules.payload_limits
    if limits.is_on and len(request.body) > limits.event_bytes:
        counts["payload_limits: events refused"] += 1
        message = f"Request must be smaller than {limits.event_bytes} bytes for the InvokeFunction operation"
        return lambda_error(413, "RequestEntityTooLargeException", Type="User", message=message)
    answer = await ask(app, request)
    if answer.status == 429 and rules.concurrency.is_on:
        counts["concurrency: invocations refused"] += 1
        reason = str(_json_object(answer).get("Reason", "ConcurrentInvocationLimitExceeded"))
        return lambda_error(429, _THROTTLES, Reason=reason, Type="User", message="Rate Exceeded.")
    return answer


async def _in_time(app: App, request: Request, limits: PayloadLimits) -> Answer | None:
    """The answer, or None if it did not come in time. The function goes on, as in AWS."""
    if not limits.is_on:
        return await ask(app, request)
    call = asyncio.get_running_loop().create_task(ask(app, request))
    done, _ = await asyncio.wait({call}, timeout=limits.integration_ms / 1_000)
    return call.result() if done else None


def _json_object(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
