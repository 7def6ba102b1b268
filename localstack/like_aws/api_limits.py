"""What the HTTP API and Lambda's Invoke answer where a request, an event, an answer or the account is at its limit.

The HTTP API takes 10 MB and waits 30 s (apigateway/latest/developerguide/http-api-quotas.html). A larger request gets
413. After the 30 s it answers 503, as users report (github.com/anomalyco/sst/issues/2232), while the function goes on.
If Lambda rejects the invocation, it answers 500 (lambda/latest/dg/services-apigateway-errors.html). An event above
Lambda's 6 MB gets 413, as users report; AWS documents no status for it.
"""

import asyncio
import json
from collections import Counter
from typing import Any

from localstack.like_aws.aws_errors import api_message, lambda_error
from localstack.like_aws.exchange import Answer, App, Request, ask
from localstack.like_aws.rules import PayloadLimits, Rules
from localstack.like_aws.workers import EVENT_TOO_LARGE

_THROTTLES = "TooManyRequestsException"
_TOO_LARGE = "Function.ResponseSizeTooLarge"


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
