"""The plugin that a project may name in its tests: its fixture, and that nothing else loads it."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.child_process import bare_environment

TESTS = """
import pytest
from penstock.errors import ClosedError

pytest_plugins = ["penstock.pytest_plugin"]
kept = []


def test_service_is_empty_and_its_clock_moves(penstock_service):
    penstock_service.create_topic("orders")
    kept.append(penstock_service.consumer("orders"))
    producer = penstock_service.producer()
    producer.send("orders", b"later", delay_ms=3_600_000).result()
    kept.append(producer)
    penstock_service.advance(3_600_000)
    assert [each.value for each in kept[0].poll(timeout_ms=60_000)] == [b"later"]


def test_next_one_is_new_and_the_clients_of_the_last_one_are_closed(penstock_service):
    assert list(penstock_service.admin().list_topics()) == []
    for call in (kept[0].poll, lambda: kept[1].send("orders", b"1")):
        with pytest.raises(ClosedError):
            call()
"""


def test_fixture_gives_each_test_a_service_and_closes_its_clients(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_shop.py"],
        cwd=tmp_path,
        env=bare_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_pytest_loads_the_plugin_only_where_a_project_names_it() -> None:
    assert [each.value for each in entry_points(group="pytest11") if "penstock" in each.value] == []
    script = "import sys, penstock.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=bare_environment(), capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]
