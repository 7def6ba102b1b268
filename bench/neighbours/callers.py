"""Callers of a local stack: users of their own, clients that keep a pace or wait, and the times of their calls."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.report.result import Row
from localstack.clients import client
from penstock import Admin
from penstock.configuration import Configuration, StaticCredentials, find_configuration
from penstock.errors import ConnectionFailedError
from penstock.http.transport import HttpTransport
from penstock_core.limits import FETCH_WAIT_MS_MAX
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode

USERS = "arn:aws:iam::000000000000:user/"
_ANY_ROUTE = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}],
}
_THROTTLED = 429


def port(environ: Mapping[str, str] = os.environ) -> int:
    """The port of the emulator."""
    return int(environ["AWS_ENDPOINT_URL"].rpartition(":")[2])


@contextmanager
def user(name: str, environ: Mapping[str, str] = os.environ) -> Iterator[HttpTransport]:
    """An IAM user who may call every route of the stack that the environment names. It goes with the block."""
    iam = client("iam", port(environ))
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="only", PolicyDocument=json.dumps(_ANY_ROUTE))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    found = find_configuration(environ=environ)
    credentials = StaticCredentials(key["AccessKeyId"], key["SecretAccessKey"])
    try:
        yield HttpTransport(Configuration(url=found.url, region=found.region, credentials=credentials), timeout_s=40)
    finally:
        iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
        iam.delete_user_policy(UserName=name, PolicyName="only")
        iam.delete_user(UserName=name)


@contextmanager
def topic(admin: Admin, name: str) -> Iterator[str]:
    """A new topic with one partition."""
    admin.create_topic(name, partitions=1)
    try:
        yield name
    finally:
        admin.delete_topic(name)


@dataclass(slots=True)
class Calls:
    """The calls of one kind: when the served ones ended, how long they took, and how many were not served."""

    ended_s: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    throttled: int = 0
    failed: int = 0

    def quantile_ms(self, share: float) -> float:
        """The time that so large a share of the served calls took at most."""
        ordered = sorted(self.took_ms)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0

    def row(self, name: str) -> Row:
        """The calls as a row of a table."""
        return {
            "calls": name,
            "served": len(self.took_ms),
            "throttled": self.throttled,
            "failed": self.failed,
            "p50_ms": self.quantile_ms(0.5),
            "p99_ms": self.quantile_ms(0.99),
        }


def produce(transport: HttpTransport, name: str, calls: Calls) -> float:
    """Sends one record. Gives the seconds that the service wants the caller to stay away."""
    batch = encode([NewRecord(time.time_ns() // 1_000_000, None, b"v" * 100)])
    body = frame.encode({"batches": [{"topic": name, "partition": 0, "length": len(batch)}]}, [batch])
    return _call(transport, "/v1/produce", body, calls)[0]


def fetch(transport: HttpTransport, name: str, calls: Calls, *, offset: int = 0, wait_ms: int = 0) -> float:
    """Reads from the offset. Gives the seconds that the service wants the caller to stay away."""
    wanted: Mapping[str, Any] = {
        "partitions": [{"topic": name, "partition": 0, "offset": offset}],
        "max_bytes": 1_000,
        "wait_ms": wait_ms,
    }
    away_s, body = _call(transport, "/v1/fetch", json.dumps(wanted).encode(), calls)
    told_ms = frame.decode(body)[0].get("retry_after_ms") if body else None
    return told_ms / 1_000 if isinstance(told_ms, int) else away_s


@contextmanager
def beside(*runs: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs these in threads beside the block, until the block ends and sets their event."""
    is_over = threading.Event()
    threads = [threading.Thread(target=run, args=(is_over,), daemon=True) for run in runs]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        is_over.set()
        for each in threads:
            each.join(FETCH_WAIT_MS_MAX / 1_000 + 10)


def paced(call: Callable[[], float], *, seconds: float, pause_s: float) -> None:
    """Calls for so long, with a pause behind each call."""
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        call()
        time.sleep(pause_s)


def _call(transport: HttpTransport, path: str, body: bytes, calls: Calls) -> tuple[float, bytes]:
    begin_s = time.perf_counter()
    with suppress(ConnectionFailedError):
        answer = transport.call("POST", path, {}, {}, body)
        end_s = time.perf_counter()
        if answer.status == 200:
            calls.ended_s.append(end_s)
            calls.took_ms.append((end_s - begin_s) * 1_000)
            return 0.0, bytes(answer.body)
        if answer.status == _THROTTLED and b"quota" in answer.body:
            calls.throttled += 1
            return float(json.loads(answer.body)["error"]["retry_after_ms"]) / 1_000, b""
    calls.failed += 1
    return 1.0, b""
