"""Runs the service's code in this process on the local stack's tables and buckets, and counts DynamoDB's units.

The deployed functions do not ask for the consumed capacity; here every call does. The settings are those of the
deployed `penstock-produce` function, and the keys are the emulator's root keys.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import click

from bench.report.result import Row
from localstack.clients import ROOT_KEY, client, endpoint_url
from penstock.configuration import find_configuration
from penstock_service.adapters.aws import Storage, aws_instance, storage_of_environment
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance

_WRITES = ("UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems")


class Meter(StorageCalls):
    """Counts storage calls, and the read and write units of DynamoDB."""

    def __init__(self) -> None:
        super().__init__()
        self._units: Counter[str] = Counter()  # in hundredths

    def watch(self, client: Any) -> None:
        """Counts the client's calls. A DynamoDB client also asks for the consumed capacity of each."""
        super().watch(client)
        if client.meta.service_model.service_name == "dynamodb":
            client.meta.events.register("provide-client-params.dynamodb", _ask)
            client.meta.events.register("after-call.dynamodb", self._take)

    @contextmanager
    def metered(self) -> Iterator["Cost"]:
        """The cost of the block. It is filled in when the block ends."""
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
    """Storage calls by `service.Operation`, and the units of DynamoDB."""

    calls: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0

    def per(self, count: int) -> Row:
        """The cost of one of `count` equal operations, as columns of a table."""
        calls = [f"{number / count:.3g} {name.partition('.')[2]}" for name, number in sorted(self.calls.items())]
        return {
            "storage_calls": ", ".join(calls),
            "write_units": round(self.write_units / count, 2),
            "read_units": round(self.read_units / count, 2),
        }


def metered_instance() -> tuple[Instance, Meter]:
    """An instance on the stack that PENSTOCK_URL names, and its meter."""
    meter = Meter()
    return aws_instance(storage_of_stack(), meter), meter


def storage_of_stack() -> Storage:
    """The tables and buckets of the stack that PENSTOCK_URL names, with the emulator's root keys."""
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
