"""The stack under attack: its functions' way to storage through the proxy, and its zones' states."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_broker.adapters.dynamodb.zones import DynamoDbZoneStateStore
from penstock_broker.adapters.system import SystemChance, SystemClock
from penstock_core.zone_state import ZoneStates
from tests.end_to_end.local_stack import Stack

_THROUGH_PROXY = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3")
_ZONES = "PENSTOCK_ZONES"
_TOPICS_TABLE = "PENSTOCK_TOPICS_TABLE"


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


class ZoneDesk:
    """Looks at zone states, and puts them back in sync after an outage.

    That is the keeper's to do, once a zone has caught up. Records need no keeper: each is in two zones when it is
    acknowledged, whatever the states say. Appends with acks=all wait for the zone again.
    """

    def __init__(self, stack: Stack) -> None:
        client = DynamoDbClient(stack.root_client("dynamodb"), SystemClock(), SystemChance())
        self._store = DynamoDbZoneStateStore(client, _setting(stack, _TOPICS_TABLE))

    def put_back(self) -> None:
        states = self._store.get()
        if states.by_zone:
            self._store.change(states, ZoneStates(version=states.version + 1))


def _setting(stack: Stack, name: str) -> str:
    return next(variables[name] for variables in _environments(stack).values() if name in variables)


def _environments(stack: Stack) -> dict[str, dict[str, str]]:
    functions: list[Any] = stack.root_client("lambda").list_functions()["Functions"]
    return {each["FunctionName"]: each.get("Environment", {}).get("Variables", {}) for each in functions}
