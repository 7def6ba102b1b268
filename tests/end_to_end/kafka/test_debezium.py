"""Debezium, in Kafka Connect and alone: changes of PostgreSQL's rows arrive, and what was killed resumes."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, TopicPartition
from tests.end_to_end.kafka.connect_worker import CONNECT_JARS, ConnectWorker, connect
from tests.end_to_end.kafka.gateway_process import gateway_process
from tests.end_to_end.kafka.postgres_server import Postgres, postgres_server
from tests.end_to_end.local_stack import Stack, free_port
from tests.support.child_process import child_process
from tests.support.deadlines import until
from tests.support.kafka_jars import compile_java, kafka_jars

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

TOPIC, PARTITIONS = "shop.public.orders", 3
_JARS = (
    *("debezium-api", "debezium-config", "debezium-connect-plugins", "debezium-connector-common"),
    *(
        "debezium-connector-postgres",
        "debezium-openlineage-api",
        "debezium-util",
        "postgresql-",
        "protobuf-java-",
        "sketches-java",
    ),
)
OFFSETS = "/connectors/orders/offsets"
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def _source(database: Postgres) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.orders",
        "publication.autocreate.mode": "filtered",
    }


def _config(database: Postgres) -> dict[str, str]:
    return {
        **_source(database),
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.partitions": str(PARTITIONS),
    }


def _is_running(worker: ConnectWorker) -> bool:
    status, found = worker.ask("GET", "/connectors/orders/status")
    return status == 200 and [each["state"] for each in found["tasks"]] == ["RUNNING"]


def _is_streaming(worker: ConnectWorker) -> bool:
    """True once Connect has committed an offset behind the snapshot."""
    status, found = worker.ask("GET", OFFSETS)
    offsets: list[Any] = [each["offset"] for each in found["offsets"]] if status == 200 else []
    return bool(offsets) and all(bool(each) and "lsn" in each and not each.get("snapshot") for each in offsets)


class _Table:
    """The table as its topic tells it: the state of each key after all its records, in order."""

    def __init__(self, stack: Stack) -> None:
        self._consumer = Consumer(transport=stack.transport(), auto_offset_reset="earliest")
        self._consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        self.rows: dict[int, str] = {}
        self.partitions: dict[int, set[int]] = {}
        self.operations: list[str] = []

    def read(self) -> dict[int, str]:
        """Read what has come, and answer the rows."""
        for record in self._consumer.poll(timeout_ms=500):
            key = json.loads(record.key or b"")["id"]
            self.partitions.setdefault(key, set()).add(record.partition)
            change: Any = json.loads(record.value) if record.value else None
            if change is None or change["after"] is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = change["after"]["state"]
            if change is not None:
                self.operations.append(change["op"])
        return self.rows

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def test_changes_of_rows_arrive_by_key_and_a_killed_worker_resumes(stack: Stack, admin: Admin, tmp_path: Path) -> None:
    workers, port = connect(tmp_path, *_JARS), free_port()
    address, names = f"127.0.0.1:{port}", {"group.id": "debezium", "config.storage.topic": "debezium-configs"}
    names |= {"offset.storage.topic": "debezium-offsets", "status.storage.topic": "debezium-status"}
    with postgres_server() as database, gateway_process(stack, port):
        database.run("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        database.run("INSERT INTO orders SELECT number, 'new' FROM generate_series(1, 50) number")
        answers: list[Any] = []

        with workers.distributed("first", address, **names) as worker:

            def is_created() -> bool:
                answers.append(worker.ask("POST", "/connectors", {"name": "orders", "config": _config(database)}))
                return bool(answers[-1][0] == 201)

            until(is_created, shown=lambda: answers[-1:], deadline_s=180)
            until(lambda: _is_running(worker), deadline_s=180)
            until(lambda: any(each.name == TOPIC for each in admin.list_topics()), deadline_s=120)
            table = _Table(stack)
            expected = dict.fromkeys(range(1, 51), "new")
            until(lambda: table.read() == expected, shown=lambda: len(table.rows), deadline_s=120)
            database.run("UPDATE orders SET state = 'paid' WHERE id <= 20; DELETE FROM orders WHERE id = 50")
            expected |= dict.fromkeys(range(1, 21), "paid")
            del expected[50]
            until(lambda: table.read() == expected, shown=lambda: len(table.rows), deadline_s=120)
            until(lambda: _is_streaming(worker), shown=lambda: worker.ask("GET", OFFSETS), deadline_s=120)
            worker.kill()
        database.run("UPDATE orders SET state = 'sent' WHERE id <= 10; INSERT INTO orders VALUES (51, 'new')")
        expected |= dict.fromkeys(range(1, 11), "sent") | {51: "new"}
        with workers.distributed("second", address, **names) as worker:
            until(lambda: table.read() == expected, shown=lambda: len(table.rows), deadline_s=240)
            database.run("DELETE FROM orders")
            until(lambda: not table.read(), shown=lambda: table.rows, deadline_s=120)
        table.close()
    assert all(len(found) == 1 for found in table.partitions.values())
    assert table.operations.count("r") == 50  # the worker that resumed took no second snapshot


def test_engine_without_connect_resumes_from_the_offsets_in_its_topic_when_it_is_killed(
    stack: Stack, tmp_path: Path
) -> None:
    jars = kafka_jars(*CONNECT_JARS, *_JARS, "debezium-embedded")
    class_path = compile_java([Path(__file__).with_name("Engine.java")], jars, tmp_path)
    port, notes = free_port(), tmp_path / "notes"

    def operations() -> list[str]:
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [json.loads(line)["payload"]["op"] for line in lines]

    with postgres_server() as database, gateway_process(stack, port):
        database.run("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        database.run("INSERT INTO orders SELECT number, 'new' FROM generate_series(1, 5) number")
        settings = {
            **_source(database),
            "name": "engine",
            "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
            "offset.storage.topic": "engine-offsets",
            "offset.storage.partitions": "1",
            "offset.storage.replication.factor": "-1",
            "offset.flush.interval.ms": "0",
            "bootstrap.servers": f"127.0.0.1:{port}",
        }
        path = tmp_path / "engine.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "Engine", str(path), str(notes)]
        log = (tmp_path / "engine.log").open("w")
        with log, child_process(command, deadline_s=600, stdout=log, stderr=log):
            until(lambda: len(operations()) == 5, shown=operations, deadline_s=180)
            database.run("UPDATE orders SET state = 'paid' WHERE id = 1")
            until(lambda: len(operations()) == 6, shown=operations, deadline_s=120)
            until(lambda: _offsets(stack) > 1, shown=lambda: _offsets(stack), deadline_s=120)
        database.run("UPDATE orders SET state = 'sent' WHERE id = 2; INSERT INTO orders VALUES (6, 'new')")
        log = (tmp_path / "engine-again.log").open("w")
        with log, child_process(command, deadline_s=600, stdout=log, stderr=log):
            until(lambda: operations()[-1:] == ["c"], shown=operations, deadline_s=180)
    assert operations().count("r") == 5  # one snapshot
    assert operations()[-2:] == ["u", "c"]


def _offsets(stack: Stack) -> int:
    """The records in the topic of the engine's offsets."""
    with Admin(transport=stack.transport()) as admin:
        return sum(each.high_watermark for each in admin.describe_topic("engine-offsets").offsets)
