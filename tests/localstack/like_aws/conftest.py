"""One emulator without Penstock for all tests of a worker, and its clients, which repeat nothing by themselves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.config import Config

from localstack.clients import REGION, endpoint_url, read_rules, set_rules
from localstack.emulator import install_ministack, ministack_python, start_emulator, stop_emulator
from localstack.places import Places
from tests.end_to_end.local_stack import free_port


@dataclass(frozen=True, slots=True)
class Emulated:
    """A running emulator under rules."""

    port: int

    def client(self, service: str, key: str = "test", secret: str = "test") -> Any:
        config = Config(retries={"total_max_attempts": 1}, max_pool_connections=32)
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=endpoint_url(self.port),
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=config,
        )

    def counts(self) -> dict[str, int]:
        return dict(read_rules(self.port)["counts"])

    def hold(self, rules: str) -> None:
        set_rules(self.port, rules)


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulated]:
    places = Places(tmp_path_factory.mktemp("emulator"))
    port = free_port()
    start_emulator(places, ministack_python() or install_ministack(), port)
    try:
        yield Emulated(port)
    finally:
        stop_emulator(places)


@pytest.fixture
def under(emulated: Emulated) -> Iterator[Callable[[str], Emulated]]:
    """Puts the emulator under the rules of a text. They end with the test."""

    def put_under(rules: str) -> Emulated:
        emulated.hold(rules)
        return emulated

    yield put_under
    emulated.hold("none")


@pytest.fixture
def table(emulated: Emulated, request: pytest.FixtureRequest) -> str:
    """An on-demand table with the keys pk and sk, both text."""
    return make_table(emulated, f"t{abs(hash(request.node.nodeid))}")


def make_table(emulated: Emulated, name: str, **billing: Any) -> str:
    emulated.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("pk", "sk")],
        **(billing or {"BillingMode": "PAY_PER_REQUEST"}),
    )
    return name


def item(pk: str, sk: str = "head", **attributes: Any) -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": sk}, **attributes}
