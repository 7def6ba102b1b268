"""Copiers in transactions, which are killed with their gateway again and again: what the tests of them share."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import Admin, Consumer, Producer, TopicPartition
from tests.end_to_end.local_stack import free_port
from tests.support.deadlines import until
from tests.support.kafka_jars import compile_java, kafka_jars

SECONDS = 90.0
PARTITIONS = 4
COPIERS = 2


@dataclass(slots=True, kw_only=True)
class Copying:
    """The processes. The gateway is always at one port, so its clients find its successor.

    They find the service by the environment. The topics `source` and `target` must be there.
    """

    folder: Path
    copier: list[str]  # the command line without its arguments
    source: str = "source"
    target: str = "target"
    group: str = "copiers"
    port: int = field(default_factory=free_port)
    gateway: "subprocess.Popen[Any] | None" = None
    copiers: "dict[int, subprocess.Popen[Any]]" = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def start_gateway(self) -> None:
        """Returns once it listens."""
        self.gateway = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from penstock.cli import main; main()",
                "kafka",
                "--listen",
                f"127.0.0.1:{self.port}",
            ],
            stdout=subprocess.PIPE,
            stderr=(self.folder / "gateway.log").open("a"),
            text=True,
        )
        assert self.gateway.stdout is not None
        assert "are served" in self.gateway.stdout.readline()

    def kill_gateway(self) -> None:
        """SIGKILL, and another one at the same address."""
        assert self.gateway is not None
        self.gateway.kill()
        self.gateway.wait()
        self.kills["gateway"] += 1
        self.start_gateway()

    def start_copier(self, number: int) -> None:
        """With the transactional id of its number."""
        self.copiers[number] = subprocess.Popen(
            [
                *self.copier,
                f"127.0.0.1:{self.port}",
                self.group,
                self.source,
                self.target,
                f"copier-{number}",
                str(self.folder / f"{number}.notes"),
            ],
            stderr=(self.folder / f"{number}.log").open("a"),
        )

    def kill_copier(self, number: int) -> None:
        """SIGKILL, and another one of its number."""
        self.copiers[number].send_signal(signal.SIGKILL)
        self.copiers[number].wait()
        self.kills["copier"] += 1
        self.start_copier(number)

    def start_the_ended(self) -> None:
        """A copier ends by itself if an error is fatal."""
        for number, process in [*self.copiers.items()]:
            if process.poll() is not None:
                self.kills["ended by itself"] += 1
                self.start_copier(number)

    def close(self) -> None:
        """Kill all."""
        for process in [*self.copiers.values(), *([self.gateway] if self.gateway else [])]:
            process.kill()
            process.wait()


def librdkafka(folder: Path) -> list[str]:
    """librdkafka."""
    return [sys.executable, "-m", "tests.kafka.exactly_once.copier"]


def java(folder: Path) -> list[str]:
    """Kafka's own client."""
    jars = kafka_jars("kafka-clients", "lz4-java", "slf4j-api-2", "zstd", "snappy")
    path = compile_java([Path(__file__).with_name("Copier.java")], jars, folder)
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path, "Copier"]


COPIER_KINDS: Mapping[str, Callable[[Path], list[str]]] = {"librdkafka": librdkafka, "java": java}


def copy_and_kill(copying: Copying) -> None:
    """Produce, kill copiers and gateways, and find each record in the target once."""
    chance = random.Random(11)
    copying.start_gateway()
    for number in range(COPIERS):
        copying.start_copier(number)
    sent = 0
    ends_s = time.monotonic() + SECONDS
    with Producer() as producer:
        while time.monotonic() < ends_s:
            for _ in range(chance.randrange(200, 600)):
                producer.send(copying.source, str(sent).encode(), partition=sent % PARTITIONS)
                sent += 1
            producer.flush()
            time.sleep(chance.uniform(0.2, 3))
            copying.start_the_ended()
            if chance.random() < 0.5:
                copying.kill_gateway()
            else:
                copying.kill_copier(chance.randrange(COPIERS))
    admin = Admin()

    def lag() -> int:
        copying.start_the_ended()
        parts = admin.describe_group(copying.group).partitions
        return sum(sent if each.lag is None else each.lag for each in parts) if len(parts) == PARTITIONS else sent

    until(lambda: lag() == 0, shown=lag, deadline_s=180)
    copied = _values(copying.target)
    notes = Counter(line for path in copying.folder.glob("*.notes") for line in path.read_text().splitlines())
    print(f"{sent} records, {dict(copying.kills)}, transactions: {dict(notes)}")
    found = Counter(value for values in copied.values() for value in values)
    assert [value for value, count in found.items() if count > 1] == []
    assert sorted(set(range(sent)) - set(found)) == []
    assert all(values == sorted(values) for values in copied.values())


def _values(topic: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    ends = {each.partition: each.high_watermark for each in Admin().describe_topic(topic).offsets}
    with Consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while any(len(found[number]) < end for number, end in ends.items()):
            for record in consumer.poll(timeout_ms=1_000):
                found[record.partition].append(int(record.value or b""))
    return found
