"""The stack under attack: its functions' way to storage through the proxy, and its zones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_broker.adapters.dynamodb.zones import DynamoDbZoneStateStore
from penstock_broker.adapters.system import SystemChance, SystemClock
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.items import parse_head, parse_page
from penstock_core.keys import HEAD, segment_key
from tests.end_to_end.local_stack import Stack

_THROUGH_PROXY = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3")
_ZONES = "PENSTOCK_ZONES"
_TOPICS_TABLE = "PENSTOCK_TOPICS_TABLE"
_LOG_TABLE = "PENSTOCK_LOG_TABLE"
_KEEPER = "penstock-keeper"


def zone_of_bucket(stack: Stack) -> dict[str, str]:
    """Zone names by bucket, in the configured order of zones."""
    return {bucket: zone for zone, bucket in (each.split("=", 1) for each in _setting(stack, _ZONES).split(","))}


@contextmanager
def functions_through(stack: Stack, proxy_url: str) -> Iterator[None]:
    """Every function reaches DynamoDB and S3 at `proxy_url` for as long as this lasts."""
    lambdas = stack.root_client("lambda")
    before = _environments(stack)
    through = dict.fromkeys(_THROUGH_PROXY, proxy_url)
    try:
        for name, variables in before.items():
            lambdas.update_function_configuration(FunctionName=name, Environment={"Variables": variables | through})
        yield
    finally:
        for name, variables in before.items():
            lambdas.update_function_configuration(FunctionName=name, Environment={"Variables": variables})


class Zones:
    """What an operator can see and start of the zones, past the proxy: states, copies, and the keeper's work."""

    def __init__(self, stack: Stack) -> None:
        self._lambdas = stack.root_client("lambda")
        self._dynamodb = stack.root_client("dynamodb")
        self._s3 = stack.root_client("s3")
        self._log_table = _setting(stack, _LOG_TABLE)
        self._buckets = zone_of_bucket(stack)
        client = DynamoDbClient(self._dynamodb, SystemClock(), SystemChance())
        self._states = DynamoDbZoneStateStore(client, _setting(stack, _TOPICS_TABLE))

    def keep(self) -> None:
        """One run of the keeper, now; its schedule would start it each minute. A run that fails is followed by more."""
        self._lambdas.invoke(FunctionName=_KEEPER, Payload=b"{}")

    def all_in_sync(self) -> bool:
        zones = [ZoneName(zone) for zone in self._buckets.values()]
        return self._states.get().in_sync(zones) == (1 << len(zones)) - 1

    def missing_copies(self) -> dict[str, int]:
        """How many of the segments that refs name are not in the zone's bucket, for zones that lack some."""
        named = {segment_key(each) for each in self._segments()}
        missing = {zone: len(named - self._keys(bucket)) for bucket, zone in self._buckets.items()}
        return {zone: count for zone, count in missing.items() if count}

    def _segments(self) -> Iterator[SegmentId]:
        for page in self._dynamodb.get_paginator("scan").paginate(TableName=self._log_table, ConsistentRead=True):
            for item in page["Items"]:
                kind = item["sk"]["S"]
                if kind == HEAD:
                    yield from (ref.segment_id for ref in parse_head(item).tail)
                elif kind.startswith("page#"):
                    yield from (ref.segment_id for ref in parse_page(item).refs)

    def _keys(self, bucket: str) -> set[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}


def _setting(stack: Stack, name: str) -> str:
    return next(variables[name] for variables in _environments(stack).values() if name in variables)


def _environments(stack: Stack) -> dict[str, dict[str, str]]:
    functions: list[Any] = stack.root_client("lambda").list_functions()["Functions"]
    return {each["FunctionName"]: each.get("Environment", {}).get("Variables", {}) for each in functions}
