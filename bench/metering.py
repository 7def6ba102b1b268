"""The service's own code in this process on the local stack's tables and buckets, with what DynamoDB says it consumed.

The deployed functions do not ask for consumed capacity; here every call does. Settings are those of the deployed
`penstock-produce` function; the keys are the emulator's root keys.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import click

from localstack.clients import ROOT_KEY, client, endpoint_url
from penstock.configuration import find_configuration
from penstock_broker.adapters.aws import Storage, aws_broker, storage_of_environment
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.broker import Broker

_WRITES = ("UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems")


class Meter(StorageCalls):
    """Counts calls, and the read and write units of those to DynamoDB."""

    def __init__(self) -> None:
        super().__init__()
        self._units: Counter[str] = Counter()  # in hundredths

    def watch(self, client: Any) -> None:
        """Also asks for the consumed capacity of every call."""
        super().watch(client)
        if client.meta.service_model.service_name == "dynamodb":
            client.meta.events.register("provide-client-params.dynamodb", _ask)
            client.meta.events.register("after-call.dynamodb", self._take)

    @contextmanager
    def metered(self) -> Iterator["Cost"]:
        """What is spent in the block, once it has ended."""
        before, units = self.snapshot(), self._units.copy()
        cost = Cost()
        yield cost
        cost.calls.update(self.since(before))
        cost.write_units = (self._units["write"] - units["write"]) / 100
        cost.read_units = (self._units["read"] - units["read"]) / 100

    def _take(self, http_response: Any, parsed: dict[str, Any], model: Any, **_: Any) -> None:  # noqa: ARG002 - named
        found = parsed.get("ConsumedCapacity", [])
        spent = sum(each["CapacityUnits"] for each in ([found] if isinstance(found, dict) else found))
        self._units["write" if model.name in _WRITES else "read"] += round(100 * spent)


@dataclass
class Cost:
    """Storage calls by `service.Operation`, and DynamoDB's units."""

    calls: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0

    def per(self, count: int) -> dict[str, Any]:
        """As a row of a table, for one of `count` equal things."""
        calls = [f"{number / count:.3g} {name.partition('.')[2]}" for name, number in sorted(self.calls.items())]
        return {
            "storage calls": ", ".join(calls),
            "write units": round(self.write_units / count, 2),
            "read units": round(self.read_units / count, 2),
        }


def metered_broker() -> tuple[Broker, Meter]:
    """A broker on the stack that PENSTOCK_URL names, and what it spends."""
    meter = Meter()
    return aws_broker(storage_of_stack(), meter), meter


def storage_of_stack() -> Storage:
    """Where the stack that PENSTOCK_URL names keeps its data, with the emulator's root keys."""
    found = find_configuration()
    port = urlsplit(found.url).port
    if port is None:
        raise click.ClickException(f"PENSTOCK_URL={found.url!r} is no local stack: `penstock local up` starts one")
    deployed = client("lambda", port).get_function_configuration(FunctionName="penstock-produce")
    return replace(
        storage_of_environment(deployed["Environment"]["Variables"]),
        region=found.region,
        endpoint_url=endpoint_url(port),
        access_key=ROOT_KEY,
        secret_key=ROOT_KEY,
    )


def _ask(params: dict[str, Any], **_: Any) -> None:
    params["ReturnConsumedCapacity"] = "TOTAL"
