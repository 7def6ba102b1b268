"""The gateway in front of the deployed stack: clients of others, kill -9, and SIGTERM."""

import shutil
import signal
import subprocess
from collections import Counter

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from penstock import Admin
from tests.end_to_end.kafka.gateway_process import gateway_process
from tests.end_to_end.local_stack import Stack, free_port
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

COUNT = 3_000


def _read(address: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(3)])
    taken: list[tuple[int, bytes]] = []

    def take() -> None:
        taken.extend((each.partition(), each.value()) for each in consumer.consume(1_000, 1) if not each.error())

    until(lambda: len(taken) >= count, step=take, shown=lambda: len(taken))
    consumer.close()
    return taken


def test_idempotent_records_are_there_once_and_in_order_when_the_gateway_is_killed(stack: Stack, topic: str) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
    failed: list[object] = []

    def send(first: int) -> None:
        for number in range(first, first + COUNT):
            producer.produce(
                topic, b"%d" % number, partition=number % 3, on_delivery=lambda error, _: failed.append(error)
            )
            producer.poll(0)

    with gateway_process(stack, port) as process:
        send(0)
        until(lambda: failed, step=lambda: producer.poll(0.01))  # some are delivered, others are on their way
        process.kill()
    with gateway_process(stack, port) as process:
        send(COUNT)
        assert producer.flush(120) == 0
        taken = _read(address, topic, 2 * COUNT)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert Counter(failed) == {None: 2 * COUNT}
    for partition in range(3):
        found = [int(value) for number, value in taken if number == partition]
        assert found == list(range(partition, 2 * COUNT, 3))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat")
def test_kcat_produces_and_reads(stack: Stack, admin: Admin, topic: str) -> None:
    port = free_port()
    kcat = ["kcat", "-b", f"127.0.0.1:{port}", "-t", topic, "-q"]
    with gateway_process(stack, port):
        lines = "".join(f"{number}\n" for number in range(500))
        subprocess.run([*kcat, "-P", "-p", "1", "-X", "enable.idempotence=true"], input=lines, text=True, check=True)
        done = subprocess.run([*kcat, "-C", "-p", "1", "-o", "beginning", "-e"], capture_output=True, check=True)
    assert done.stdout.decode() == lines
    assert [each.high_watermark for each in admin.describe_topic(topic).offsets] == [0, 500, 0]
