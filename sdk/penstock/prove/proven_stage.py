"""The stage that is proven: its clients, its outputs, and the names of what a row may look at."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.admin.admin import Admin
from penstock.configuration import Configuration
from penstock.doctor.account_checks import Account
from penstock.doctor.recorder import AwsCalls, Exchange, RecordingTransport
from penstock.errors import error_from_response
from penstock.http.http_message import BATCHES_TYPE, JSON_TYPE
from penstock.prove.leftovers import TOPIC_PREFIX, Leftovers
from penstock.system import monotonic_ms, new_nonce, random_bytes, wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, Record, decode, encode
from penstock_core.stack_outputs import outputs_of, parse_stack_place

PAST_INLINE_BYTES = 5 * KIB  # a record of this size never becomes an item (INLINE_BYTES_MAX): it goes into the zones
_OK, _TRIES, _RETRY_S = 200, 5, 0.5
_LINES_MAX = 100  # of one log group
_RETENTION_MS = 3_600_000  # if a run is killed, its records go by themselves


@dataclass(frozen=True, kw_only=True)
class ProvenStage:
    """`account` is None where there is no AWS, as with `penstock dev`. `is_local` is true for an emulator, too.

    `is_own` is a stage that the run has deployed and removes. `may_disturb` allows rows that change the stage.
    `configuration` is None in tests of a service without a URL.
    """

    transport: RecordingTransport
    account: Account | None
    leftovers: Leftovers
    aws_calls: AwsCalls = field(default_factory=AwsCalls)
    configuration: Configuration | None = None
    is_local: bool = False
    is_own: bool = False
    may_disturb: bool = False
    idle_ms: int = 120_000
    role_arn: str | None = None
    began_at_ms: int = field(default_factory=wall_clock_ms)
    wait: Callable[[float], object] = lambda _: None

    def client(self, service: str) -> Any:
        """A client of AWS. The runner calls no row without an account that needs one."""
        assert self.account is not None
        return self.account.client(service)

    @cached_property
    def admin(self) -> Admin:
        """A client for operators, which records each call."""
        return Admin(transport=self.transport)

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The outputs of the stack by their own names. One DescribeStacks."""
        assert self.account is not None
        place = parse_stack_place(self.account.stack)
        [stack] = self.client("cloudformation").describe_stacks(StackName=place.stack)["Stacks"]
        return outputs_of(stack, place)

    @cached_property
    def name(self) -> str:
        """The stage's name, which begins the names of its functions. The rule of `promote` tells it."""
        return self.outputs["TimerPlaces"].split(",")[1].removesuffix("-promote")

    @cached_property
    def _resources(self) -> Mapping[str, tuple[str, ...]]:
        """The physical ids of the stack's resources by type. Pages of ListStackResources."""
        assert self.account is not None
        place = parse_stack_place(self.account.stack)
        found: dict[str, list[str]] = {}
        for page in self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=place.stack):
            for each in page["StackResourceSummaries"]:
                if each["LogicalResourceId"].startswith(place.prefix):
                    found.setdefault(each["ResourceType"], []).append(each["PhysicalResourceId"])
        return {kind: tuple(sorted(ids)) for kind, ids in found.items()}

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The names of the stage's functions."""
        names = self._resources.get("AWS::Lambda::Function", ())
        return tuple(each for each in names if each.startswith(f"{self.name}-"))

    @property
    def mappings(self) -> tuple[str, ...]:
        """The ids of the stage's event source mappings."""
        return self._resources.get("AWS::Lambda::EventSourceMapping", ())

    @property
    def alarms(self) -> tuple[str, ...]:
        """The names of the stage's alarms."""
        kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
        return tuple(each for kind in kinds for each in self._resources.get(kind, ()))

    @property
    def has_versions(self) -> bool:
        """True if callers reach published versions of the functions, by an alias."""
        return any(each.endswith(":live") for each in self._resources.get("AWS::Lambda::Alias", ()))

    @cached_property
    def zone_buckets(self) -> Mapping[str, str]:
        """The bucket of each zone. A fallback, which takes a segment only where another zone fails, is left out."""
        zones = (each.partition("=") for each in self.outputs["ZoneBuckets"].split(","))
        buckets = {name: place.split(":") for name, _, place in zones}
        return {name: bucket for name, (bucket, *marks) in buckets.items() if "fallback" not in marks}

    def in_time(self, took_ms: float, most_ms: float) -> bool:
        """True if it took so long at most, and on an emulator, whose times prove nothing."""
        return self.is_local or took_ms <= most_ms

    def new_topic(self, **config: int) -> str:
        """Make a topic of one partition, which the run removes."""
        name = f"{TOPIC_PREFIX}{new_nonce()[:12]}"
        self.leftovers.note("topic", name)
        self.admin.create_topic(name, partitions=1, config={"retention_ms": _RETENTION_MS, **config})
        return name

    def append(self, topic: str, value: bytes = b"", *, acks: str = "quorum") -> Exchange:
        """Append one record by one request, and no second try. Without a value, it has random bytes for the zones."""
        batch = encode([NewRecord(wall_clock_ms(), None, value or random_bytes(PAST_INLINE_BYTES))])
        header = {"acks": acks, "batches": [{"topic": topic, "partition": 0, "length": len(batch)}]}
        return self.call("POST", "/v1/produce", frame.encode(header, [batch]), {"Content-Type": BATCHES_TYPE})

    def read(self, topic: str, offset: int = 0) -> list[Record]:
        """The records of partition 0 from the offset to its end, by as many fetches as it takes."""
        found: list[Record] = []
        while True:
            wanted = {"topic": topic, "partition": 0, "offset": offset}
            result, batches = self._fetched({"partitions": [wanted], "wait_ms": 0})
            found += [each for each in decode(batches) if each.offset >= offset]
            if result["next_offset"] >= result["high_watermark"]:
                return found
            offset = result["next_offset"]

    def _fetched(self, wanted: Mapping[str, object]) -> tuple[dict[str, Any], memoryview]:
        """The result of the one partition, and its batches. It tries again while the service says that this helps."""
        headers = {"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE}
        for tries_left in reversed(range(_TRIES)):
            exchange = self.call("POST", "/v1/fetch", json.dumps(wanted).encode(), headers)
            if exchange.response.status == _OK:
                header, batches = frame.decode(exchange.response.body)
                [result] = _entries(header, "partitions")
                if "error" not in result:
                    return result, batches
                error = PenstockError(ErrorCode[result["error"]["code"]], result["error"]["message"])
            else:
                error = failure(exchange)
            if not (tries_left and error.code.is_retriable):
                raise error
            self.wait(_RETRY_S)
        raise AssertionError("unreachable")

    def call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Exchange:
        """Send one request, and no second try. The answer may have any status."""
        return self.transport.exchange(method, path, {}, headers or {}, body)


def log_lines(stage: ProvenStage, group: str, since_ms: int, pattern: str, end_ms: int) -> tuple[list[str], bool]:
    """The lines of a log group since then that match, and whether they are all. Begins no page after `end_ms`.

    CloudWatch answers with pages without a line, too, as long as it has not searched all.
    """
    found: list[str] = []
    pages = stage.client("logs").get_paginator("filter_log_events")
    wanted = {"logGroupName": group, "startTime": since_ms, "filterPattern": pattern}
    for page in pages.paginate(**wanted):
        found += [each["message"].strip() for each in page["events"]]
        if not page.get("nextToken"):
            return found, True
        if len(found) >= _LINES_MAX or monotonic_ms() > end_ms:
            break
    return found, False


def aws_client(service: str, region: str, local: Mapping[str, str]) -> Any:
    """A client by the usual AWS chain, or one of the emulator that the variables of `local` name."""
    from penstock.jobs.deployed import client

    if not local:
        return client(service, region)
    import botocore.session

    return botocore.session.Session().create_client(
        service,
        region_name=local["AWS_REGION"],
        endpoint_url=local["AWS_ENDPOINT_URL"],
        aws_access_key_id=local["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=local["AWS_SECRET_ACCESS_KEY"],
    )


class UnexpectedAnswerError(Exception):
    """An answer that ends a row: what it asked for does not hold."""


def appended_offset(exchange: Exchange) -> int | None:
    """The offset that an append got, None if it was refused or failed."""
    if exchange.response.status != _OK:
        return None
    [result] = _entries(json.loads(exchange.response.body), "results")
    offset = result.get("base_offset")
    return None if "error" in result or offset is None else int(offset)


def failure(exchange: Exchange) -> PenstockError:
    """The error that an answer outside 2xx is."""
    answer = exchange.response
    return error_from_response(answer.status, answer.headers, answer.body, is_read=False)


def error_in(exchange: Exchange) -> Mapping[str, Any] | None:
    """Penstock's error in an answer, that of the request or of its first part; None if it has none."""
    try:
        document = json.loads(exchange.response.body)
        error = document.get("error") or document["results"][0].get("error")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return error if isinstance(error, dict) and "code" in error else None


def error_of(exchange: Exchange) -> str:
    """Penstock's code of an answer that is an error, else its status."""
    error = error_in(exchange)
    return str(exchange.response.status if error is None else error["code"])


def _entries(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document[name]
    return found
