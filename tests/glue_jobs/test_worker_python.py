"""The Python of Spark's workers in a local session: the one that has Penstock."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from penstock_spark.source.frames import use_this_python


def _session(master: str, python: str = "python3") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python))


def test_workers_of_a_local_session_run_this_python_when_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    session = _session("local[2]")
    use_this_python(session)
    assert session.sparkContext.pythonExec == sys.executable


def test_workers_run_the_python_that_is_named_after_the_session_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    session = _session("local[2]")
    use_this_python(session)
    assert session.sparkContext.pythonExec == "/opt/python"


@pytest.mark.parametrize("session", [_session("local", "/opt/python"), _session("yarn"), SimpleNamespace()])
def test_chosen_pythons_clusters_and_sessions_without_a_context_are_left_alone(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    use_this_python(session)
    assert getattr(session, "sparkContext", None) in (
        None,
        SimpleNamespace(master="local", pythonExec="/opt/python"),
        SimpleNamespace(master="yarn", pythonExec="python3"),
    )
