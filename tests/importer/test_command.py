"""`penstock import` as a user runs it, from librdkafka's mock cluster to a service in memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import MemoryPenstock
from penstock_import.command import import_
from tests.support.child_process import bare_environment


@pytest.fixture
def service() -> MemoryPenstock:
    return MemoryPenstock()


@pytest.fixture(scope="module")
def producer() -> Producer:
    """Its client owns the mock cluster, which ends with it."""
    return Producer({"test.mock.num.brokers": 1, "log_level": 0})


def _run(service: MemoryPenstock, *arguments: str) -> Result:
    return CliRunner().invoke(import_, arguments, obj=service.transport)


def _servers(producer: Producer) -> str:
    [broker] = producer.list_topics(timeout=30).brokers.values()
    return f"{broker.host}:{broker.port}"


def _finished(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert found["event"] == "finished"
    return found


_UNREACHABLE = """
from penstock_import.source import confluent
from penstock_import.source.address import KafkaAddress
confluent._CALL_S = 0.5
try:
    confluent.ConfluentSource(KafkaAddress(servers="127.0.0.1:1", topic="orders"), {}).describe()
except Exception as error:
    print(error)
"""


@pytest.mark.slow
def test_import_says_once_why_no_broker_answers() -> None:
    script = [sys.executable, "-c", _UNREACHABLE]
    done = subprocess.run(script, capture_output=True, check=True, env=bare_environment(), text=True)
    assert done.stderr == ""
    assert "Connection refused" in done.stdout


@pytest.mark.slow
def test_import_copies_a_topic_and_moves_a_group_and_goes_on_later(service: MemoryPenstock, producer: Producer) -> None:
    for number in range(20):
        producer.produce("orders", value=b"%d" % number, key=b"k", partition=number % 4)
    producer.flush()
    servers = _servers(producer)
    group = Consumer({"bootstrap.servers": servers, "group.id": "billing", "log_level": 0})
    group.commit(offsets=[TopicPartition("orders", each, 2) for each in range(4)], asynchronous=False)
    group.close()
    service.create_topic("bought", partitions=4)
    source = f"kafka://{servers}/orders"
    first = _finished(_run(service, source, "--to", "bought", "--group", "billing", "--json"))
    assert (first["records"], first["is_complete"], first["is_drained"]) == (20, True, True)
    assert first["groups"][0]["offsets"] == {"0": 2, "1": 2, "2": 2, "3": 2}
    producer.produce("orders", value=b"later", partition=3)
    producer.flush()
    assert _finished(_run(service, source, "--to", "bought", "--json"))["records"] == 1
    assert [each.value for each in service.records("bought") if each.partition == 3][-1] == b"later"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders"], 1, "give kafka://host:port/topic or sqs://queue"),
        (["sqs://orders", "--create", "--group", "g"], 2, "--create, --group: only for kafka://"),
        (["kafka://a/orders", "--until-empty"], 2, "--until-empty is for sqs://"),
        (["sqs://orders", "--until-empty", "--follow"], 2, "not both"),
        (["kafka://a/orders", "--from", "x=1"], 2, "is not a number"),
    ],
)
def test_import_tells_what_is_wrong(service: MemoryPenstock, arguments: list[str], code: int, message: str) -> None:
    result = _run(service, *arguments)
    assert result.exit_code == code
    assert message in result.output


def test_import_names_the_missing_topic(service: MemoryPenstock, producer: Producer, tmp_path: Path) -> None:
    producer.produce("there", value=b"")
    producer.flush()
    properties = tmp_path / "client.properties"
    properties.write_text("socket.timeout.ms=5000\n")
    result = _run(service, f"kafka://{_servers(producer)}/there", "--config", str(properties))
    assert result.exit_code == 1
    assert "there is no topic 'there': add --create" in result.output
