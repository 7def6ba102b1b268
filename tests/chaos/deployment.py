"""The stack under attack: its functions' way to storage through the proxy, and its zones."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from localstack.clients import ROOT_KEY
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.storage.head_item import parse_head
from penstock_core.storage.keys import HEAD, segment_key
from penstock_core.storage.page_item import parse_merge_mark, parse_page
from penstock_service.adapters.aws import Storage, storage_of_environment
from penstock_service.adapters.botocore_drivers import BotocoreDriver
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.topics import DynamoDbZoneStateStore
from penstock_service.adapters.system import SystemClock, SystemEntropy
from tests.end_to_end.local_stack import Stack
from tests.support.tasks import start

_THROUGH_PROXY = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3")
_ZONES = "PENSTOCK_ZONES"
_TOPICS_TABLE = "PENSTOCK_TOPICS_TABLE"
_LOG_TABLE = "PENSTOCK_LOG_TABLE"
LOOK = "look_at_subscriptions"
JOBS = ("scrub", "promote", "retention", "sweep", LOOK)
# A run cannot wait for a day and a minute. A function that serves a request ends after 30 s.
_JOB_SETTINGS = {
    "penstock-hourly": {"PENSTOCK_SCRUB_BUDGET_MS": "5000"},
    "penstock-upkeep": {"PENSTOCK_RETENTION_BUDGET_MS": "10000", "PENSTOCK_LOG_START_GRACE_MS": "40000"},
    "penstock-sweep": {
        "PENSTOCK_BUDGET_MS": "20000",
        "PENSTOCK_LOG_START_GRACE_MS": "40000",
        "PENSTOCK_SWEEP_GRACE_MS": "60000",
    },
}


def zone_of_bucket(stack: Stack) -> dict[str, str]:
    """Zone names by bucket, in the configured order of zones."""
    return {bucket: zone for zone, bucket in (each.split("=", 1) for each in _setting(stack, _ZONES).split(","))}


@contextmanager
def functions_through(stack: Stack, proxy_url: str, own_urls: Mapping[str, str]) -> Iterator[None]:
    """Let every function reach DynamoDB and S3 at `proxy_url` meanwhile, and give the jobs short graces.

    `own_urls` has the functions that have a proxy of their own.
    """
    lambdas = stack.root_client("lambda")
    before = _environments(stack)
    try:
        for name, variables in before.items():
            through = dict.fromkeys(_THROUGH_PROXY, own_urls.get(name, proxy_url))
            changed = variables | through | _JOB_SETTINGS.get(name, {})
            lambdas.update_function_configuration(FunctionName=name, Environment={"Variables": changed})
        yield
    finally:
        for name, variables in before.items():
            lambdas.update_function_configuration(FunctionName=name, Environment={"Variables": variables})


def storage_through(stack: Stack, proxy_url: str) -> Storage:
    """Describe the stack's storage for jobs, by way of `proxy_url`."""
    return replace(
        storage_of_environment(_environments(stack)["penstock-sweep"]),
        region=stack.region,
        endpoint_url=proxy_url,
        access_key=ROOT_KEY,
        secret_key=ROOT_KEY,
    )


class Zones:
    """An operator's view past the proxy: the zones' states and copies, and the scheduled functions to start.

    `done` adds up the counts that runs of jobs return, and the failed runs.
    """

    def __init__(self, stack: Stack) -> None:
        self._lambdas = stack.root_client("lambda")
        self._dynamodb = stack.root_client("dynamodb")
        self._s3 = stack.root_client("s3")
        self._log_table = _setting(stack, _LOG_TABLE)
        self._buckets = zone_of_bucket(stack)
        client = DynamoDbClient(BotocoreDriver(self._dynamodb), SystemClock(), SystemEntropy())
        self._states = DynamoDbZoneStateStore(client, _setting(stack, _TOPICS_TABLE))
        self.done: Counter[str] = Counter()

    def run(self, job: str) -> None:
        """Run a scheduled task once, now. If it fails, the caller runs it again later."""
        try:
            answer = start(self._lambdas, job)
        except self._lambdas.exceptions.TooManyRequestsException:
            self.done[f"{job}: runs that AWS refused"] += 1
            return
        counts = json.loads(answer["Payload"].read())
        self.done[f"{job}: runs"] += 1
        if "FunctionError" in answer:
            self.done[f"{job}: runs that failed"] += 1
            return
        self.done.update({f"{job}: {name}": count for name, count in counts.items() if type(count) is int})

    def all_in_sync(self) -> bool:
        zones = [ZoneName(zone) for zone in self._buckets.values()]
        return self._states.get().in_sync(zones) == (1 << len(zones)) - 1

    def missing_copies(self) -> dict[str, int]:
        """Count the segments that refs name and a zone's bucket lacks, for each zone that lacks some."""
        named = {segment_key(each) for each in self._segments()}
        missing = {zone: len(named - self._keys(bucket)) for bucket, zone in self._buckets.items()}
        return {zone: count for zone, count in missing.items() if count}

    def _segments(self) -> Iterator[SegmentId]:
        """Return the segments that must be there: refs below a log start or without a head do not count."""
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._log_table, ConsistentRead=True)
        items = [item for page in pages for item in page["Items"]]
        heads = {item["pk"]["S"]: parse_head(item) for item in items if item["sk"]["S"] == HEAD}
        for head in heads.values():
            yield from _read_from(head.log_start_offset, head.located_tail())
        for item in items:
            is_page = item["sk"]["S"].startswith("page#") and parse_merge_mark(item) is None
            if is_page and item["pk"]["S"] in heads:
                yield from _read_from(heads[item["pk"]["S"]].log_start_offset, parse_page(item).located())

    def _keys(self, bucket: str) -> set[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}


def _read_from(log_start_offset: int, refs: Iterable[LocatedRef]) -> Iterator[SegmentId]:
    """Return the segments of refs above the log start. Refs of the archive do not count, for no zone holds them."""
    return (
        located.ref.segment_id
        for located in refs
        if located.end_offset > log_start_offset and located.ref.tier is Tier.ZONAL
    )


def _setting(stack: Stack, name: str) -> str:
    return next(variables[name] for variables in _environments(stack).values() if name in variables)


def _environments(stack: Stack) -> dict[str, dict[str, str]]:
    functions: list[Any] = stack.root_client("lambda").list_functions()["Functions"]
    return {each["FunctionName"]: each.get("Environment", {}).get("Variables", {}) for each in functions}
