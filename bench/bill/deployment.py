"""A whole Penstock in this process, on boto3 and moto, whose invocations are billed.

The handlers are those that Lambda calls, with the events of API Gateway. The runtime of the instance stands still: time
passes only where a handler waits, so an hour of waiting takes no hour.
"""

import io
import json
import math
import os
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import repeat
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlencode

import boto3
from botocore.config import Config
from moto import mock_aws

from bench.bill.metered_calls import (
    EXPRESS,
    STANDARD,
    BucketPrices,
    Lines,
    MeteredCalls,
    MeteredDeliveries,
    MeteredWakeUps,
    Usage,
)
from penstock import prices
from penstock.http.http_message import Response
from penstock_cdk.settings import FUNCTION_SIZES, METRICS_NAMESPACE
from penstock_cdk.storage_profile import Profile, zone_plans
from penstock_core.limits import KIB, MIB
from penstock_core.routes import ROUTES, match_route
from penstock_handlers import router
from penstock_handlers.edge import entry, lambda_function
from penstock_service.adapters.aws import Storage, ZoneBucket, aws_instance, format_zones, storage_of_environment
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.adapters.system import SequentialExecutor, SystemEntropy
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime

# The time of a warm function, assumed: it has not run on AWS yet.
FUNCTION_MS = 30
FUNCTION_MS_PER_MIB = 30
# Lambda itself logs only invocations that failed. API Gateway writes a line for each request, of this length at most.
# tests/infra/test_idle_bill.py holds both against the template.
ACCESS_LOG_BYTES = 450

_CREDENTIALS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": prices.REGION}
_NO_OTHER_ENDPOINTS = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}  # a shell may name those of a local stack
_CONTEXT = SimpleNamespace(
    function_name="penstock",
    function_version="1",
    memory_limit_in_mb=1024,
    invoked_function_arn=f"arn:aws:lambda:{prices.REGION}:123456789012:function:penstock",
    aws_request_id="6f9619ff-8b86-d011-b42d-00c04fc964ff",
)

_FUNCTIONS = {route.key: route.function for route in ROUTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledProfile:
    """A storage profile: its zones, and the prices of each zone's bucket by the bucket's name."""

    name: Profile
    zones: tuple[ZoneBucket, ...]
    buckets: Mapping[str, BucketPrices]


def billed_profile(name: Profile) -> BilledProfile:
    """The profile as penstock_cdk plans it in the region of the prices."""
    plans = zone_plans(name, prices.REGION)
    return BilledProfile(
        name=name,
        zones=tuple(
            ZoneBucket(
                name=plan.name,
                bucket=f"zone-{plan.name}",
                is_fallback=plan.is_fallback,
                has_keys_by_hour=plan.az_id is not None,
            )
            for plan in plans
        ),
        buckets={f"zone-{plan.name}": STANDARD if plan.az_id is None else EXPRESS for plan in plans},
    )


@dataclass(slots=True)
class Bill:
    """The invocations since the last one was taken: dollars by line, and storage calls by name."""

    lines: Lines = field(default_factory=Lines)
    calls: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    function_ms: float = 0.0

    @property
    def usd(self) -> float:
        """The sum of all lines."""
        return self.lines.total()

    def add(self, usage: Usage, lines: Lines) -> None:
        """Puts captured calls and dollars on the bill."""
        self.calls.update(usage.calls)
        self.write_units += usage.write_units
        self.read_units += usage.read_units
        self.lines.add(lines)


class BillError(Exception):
    """A handler failed, so its bill is none."""


class BilledClock:
    """A clock that only sleeping moves, beginning at the time of its making."""

    def __init__(self) -> None:
        self._began_ms = time.time_ns() // 1_000_000
        self.passed_ms = 0.0

    def now_ms(self) -> int:
        return self._began_ms + int(self.passed_ms)

    def monotonic_ms(self) -> float:
        return self.passed_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.passed_ms += duration_ms


class BilledDeployment:
    """Calls handlers and bills them. It is a Transport of the SDK too."""

    def __init__(self, profile: BilledProfile, instance: Instance, clock: BilledClock, calls: MeteredCalls) -> None:
        self.clock = clock
        self.instance = instance
        self.bill = Bill()
        self.published: set[tuple[str, ...]] = set()
        self.last_log = ""
        self._buckets = profile.buckets
        self._calls = calls
        self._handlers = {route.key: entry.entry_point(router.SERVES[route.function]) for route in ROUTES}

    def take(self) -> Bill:
        """The bill since the last time."""
        taken, self.bill = self.bill, Bill()
        return taken

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Sends a request through API Gateway and a function. Raises LookupError for no route."""
        event = _event(method, path, query, headers, body)
        handler = self._handlers[event["routeKey"]]
        with self.billed(_FUNCTIONS[event["routeKey"]], moved_bytes=len(body)):
            result = handler(event, _CONTEXT)
        if result["statusCode"] >= 500:
            raise BillError(f"{event['routeKey']}: {result['body']}\n{self.last_log}")
        content = result.get("body") or ""
        data = b64decode(content) if result.get("isBase64Encoded") else content.encode()
        units = math.ceil(max(len(body), len(data), 1) / prices.API_REQUEST_BYTES)
        self.bill.requests += 1
        self.bill.lines["api"] += prices.API_REQUESTS.of(units)
        self.bill.lines["logs"] += prices.LOGGED_BYTES.of(ACCESS_LOG_BYTES)
        return Response(result["statusCode"], result["headers"], data)

    def close(self) -> None:
        """Nothing to close."""

    def run(
        self, function: str, handler: Callable[[Any, Any], Any], event: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Invokes a scheduled function with the event of its schedule."""
        with self.billed(function, moved_bytes=0):
            handler(event, _CONTEXT)

    @contextmanager
    def billed(self, function: str, *, moved_bytes: int) -> Iterator[None]:
        """Bills what is done within as one invocation of the function, which moves so many bytes."""
        began_ms = self.clock.passed_ms
        log, out = io.StringIO(), io.StringIO()
        with _logs_to(log), redirect_stdout(out):
            yield
        self.last_log = log.getvalue()
        waited_ms = self.clock.passed_ms - began_ms
        duration_ms = waited_ms + FUNCTION_MS + FUNCTION_MS_PER_MIB * moved_bytes / MIB
        self.clock.sleep_ms(duration_ms - waited_ms)
        self.published |= {metric for line in out.getvalue().splitlines() for metric in _metrics(line)}
        gb_s = FUNCTION_SIZES[function].memory_mb / KIB * duration_ms / 1_000
        logged = len(log.getvalue().encode()) + len(out.getvalue().encode())
        usage = self._calls.take()
        self.bill.function_ms += duration_ms
        self.bill.add(usage, usage.lines(lambda bucket: self._buckets.get(bucket, STANDARD)))
        self.bill.lines["lambda"] += prices.LAMBDA_REQUESTS.of(1) + prices.LAMBDA_GB_SECONDS.of(gb_s)
        self.bill.lines["logs"] += prices.LOGGED_BYTES.of(logged)


@contextmanager
def billed_deployment(
    profile: BilledProfile, log_level: str = "INFO", inline_bytes_max: int | str = 0, *, pushes: bool = False
) -> Iterator[BilledDeployment]:
    """A deployment that holds nothing yet, on moto, with one zone per bucket of the profile.

    If it `pushes`, its queue of deliveries and its targets are in memory.
    """
    environment = {
        "PENSTOCK_TOPICS_TABLE": "topics",
        "PENSTOCK_LOG_TABLE": "log",
        "PENSTOCK_GROUPS_TABLE": "groups",
        "PENSTOCK_REPAIR_QUEUE_URL": f"https://sqs.{prices.REGION}.amazonaws.com/123456789012/repairs",
        "PENSTOCK_ZONES": format_zones(profile.zones),
        "PENSTOCK_ARCHIVE": "archive",
        "PENSTOCK_INLINE_BYTES_MAX": str(inline_bytes_max),
    }
    storage = replace(
        storage_of_environment(environment), region=prices.REGION, access_key="testing", secret_key="testing"
    )
    with mock_aws(), ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, _NO_OTHER_ENDPOINTS))
        unwatched = boto3.client("dynamodb", config=Config(retries={"total_max_attempts": 1}), **_CREDENTIALS)
        _create_storage(unwatched, storage)
        calls, clock = MeteredCalls(unwatched), BilledClock()
        made = aws_instance(storage, calls)
        stores = replace(made.stores, wake_ups=MeteredWakeUps(calls))
        if pushes:
            stores = replace(stores, deliveries=MeteredDeliveries(clock, calls), targets=MemoryTargets())
        instance = Instance.new(
            stores,
            Runtime(clock=clock, entropy=SystemEntropy(), executor=SequentialExecutor()),
        )
        provider = lambda_function.metrics.provider
        level = lambda_function.logger.log_level
        stack.callback(lambda_function.logger.setLevel, level)
        lambda_function.logger.setLevel(log_level)
        provider.clear_metrics()
        for target, name, value in (
            # As in a new instance: metrics wait for their minute. The one request in a hundred whose line is logged is
            # left out. It would add 0.003 dollars to a million requests.
            (lambda_function.meter, "_clocks", lambda: (clock.passed_ms / 1_000,) * 2),
            (lambda_function.meter, "_published_s", None),
            (entry, "_requests", repeat(1)),
            (lambda_function, "instance", lambda: instance),
            (lambda_function, "STORAGE_CALLS", calls),
            (provider, "namespace", METRICS_NAMESPACE),
            (provider, "service", "penstock-produce"),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield BilledDeployment(profile, instance, clock, calls)


def _create_storage(dynamodb: Any, storage: Storage) -> None:
    for table in (storage.topics_table, storage.log_table, storage.groups_table):
        dynamodb.create_table(
            TableName=table,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            BillingMode="PAY_PER_REQUEST",
        )
    s3 = boto3.client("s3", **_CREDENTIALS)
    for bucket in (*(zone.bucket for zone in storage.zones), storage.archive):
        s3.create_bucket(Bucket=bucket)
    boto3.client("sqs", **_CREDENTIALS).create_queue(QueueName="repairs")


def _event(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The event of API Gateway, with the fields that the functions read."""
    match = match_route(method, path)
    route, parameters = ("", {}) if match is None else (match.route.key, match.parameters)
    return {
        "version": "2.0",
        "routeKey": route,
        "rawPath": unquote(path),
        "rawQueryString": urlencode(query),
        "queryStringParameters": dict(query),
        "pathParameters": parameters,
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {
            "authorizer": {"iam": {"userArn": router.LOCAL_PRINCIPAL}},
            "http": {"method": method, "path": unquote(path)},
            "stage": "$default",
        },
        "body": b64encode(body).decode(),
        "isBase64Encoded": True,
    }


@contextmanager
def _logs_to(stream: io.StringIO) -> Iterator[None]:
    handler = lambda_function.logger.registered_handler
    before = handler.setStream(stream)  # type: ignore[attr-defined]  # Powertools registers a StreamHandler
    try:
        yield
    finally:
        handler.setStream(before)  # type: ignore[attr-defined]  # as above


def _metrics(line: str) -> Iterator[tuple[str, ...]]:
    """The metrics of a line in CloudWatch's embedded format: namespace, name, dimensions. Each is billed once."""
    if '"_aws"' not in line:
        return
    document = json.loads(line)
    for directive in document["_aws"]["CloudWatchMetrics"]:
        for dimensions in directive["Dimensions"]:
            values = tuple(f"{name}={document[name]}" for name in dimensions)
            for metric in directive["Metrics"]:
                yield (directive["Namespace"], metric["Name"], *values)
