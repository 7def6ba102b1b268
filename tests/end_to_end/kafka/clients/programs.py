"""Clients that are programs: kcat, kafkajs on Node, and Kafka's own client on Java.

The programs of kafkajs and Java take the same arguments: SERVERS DEED TOPIC, and then what the deed needs. They read
values from stdin, a line each, and write what they found.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from localstack.places import CHECKOUT
from tests.end_to_end.kafka.clients.client import CALL_S
from tests.support.kafka_jars import compile_java, kafka_jars

_HERE = Path(__file__).parent
_DEADLINE_S = 2 * CALL_S


class Program:
    """A client whose command takes the arguments above."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        self._run(servers, "idempotent" if is_idempotent else "produce", topic, values=values)

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        return self._run(servers, "consume", topic, group, str(count))

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        [found] = self._run(servers, "since", topic, str(time_ms))
        return found

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        self._run(servers, "transact", topic, str(len(aborted)), values=[*aborted, *committed])

    def create(self, servers: str, topic: str, partitions: int) -> int:
        [found] = self._run(servers, "create", topic, str(partitions))
        return int(found)

    def _run(self, *arguments: str, values: Sequence[str] = ()) -> list[str]:
        return run([*self._command, *arguments], values)


class Kcat:
    """kcat: librdkafka on the command line. It has no transactions, and creates no topics."""

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        idempotence = f"enable.idempotence={str(is_idempotent).lower()}"
        run(["kcat", "-b", servers, "-t", topic, "-q", "-P", "-p", "0", "-X", idempotence], values)

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        settings = ["-X", "auto.offset.reset=earliest", "-c", str(count)]
        return run(["kcat", "-b", servers, "-q", *settings, "-G", group, topic])

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        [found] = run(["kcat", "-b", servers, "-t", topic, "-q", "-C", "-p", "0", "-o", f"s@{time_ms}", "-c", "1"])
        return found

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        pytest.skip("kcat has no transactions")

    def create(self, servers: str, topic: str, partitions: int) -> int:
        pytest.skip("kcat creates no topics")


def kcat() -> Kcat:
    """Skips the test where it is not installed."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    return Kcat()


def kafkajs() -> Program:
    """Skips the test where the package is not installed."""
    if not (CHECKOUT / "node_modules/kafkajs").is_dir():
        pytest.skip("kafkajs is not installed: make setup")
    return Program(["node", str(_HERE / "kafkajs_client.js")])


def java(folder: Path) -> Program:
    """Compiles the program. Skips the test where the jars are not installed."""
    jars = kafka_jars("kafka-clients-", "slf4j-api-2", "lz4-java", "zstd", "snappy")
    class_path = compile_java([_HERE / "JavaClient.java"], jars, folder)
    return Program(["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "JavaClient"])


def run(command: Sequence[str], values: Sequence[str] = ()) -> list[str]:
    """The lines that the command writes. It reads the values from stdin."""
    text = "".join(f"{value}\n" for value in values)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=_DEADLINE_S, cwd=CHECKOUT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
