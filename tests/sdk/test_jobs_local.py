"""Jobs on this machine: started with what they need, recorded, and told apart by how they ended."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli import main
from penstock.jobs.local import LocalPlace
from penstock.jobs.model import JobRun, RunState
from penstock_core.errors import PenstockError

TELL = """
import json, os, sys
print("a line for the log", file=sys.stderr)
print(json.dumps({"arguments": sys.argv[1:], "environment": {name: os.environ.get(name, "") for name in (
    "PENSTOCK_LOG_TABLE", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP", "PYTHONPATH")}}))
"""
FAIL = "raise SystemExit('the store is on fire')"
RESULT = """print('{"event": "result", "job": "count", "refs_before": 4096, "is_dry_run": true, "topics": ["a"]}')"""
WAIT = "import sys; sys.stdin = open({fifo!r}); sys.stdin.read()"
DEADLINE_S = 60


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with scripts that need no Spark, and a local stack's environment."""
    for name in ("glue_jobs", "localstack", ".penstock"):
        (tmp_path / name).mkdir()
    (tmp_path / "localstack" / "__main__.py").touch()
    (tmp_path / "app.py").touch()
    (tmp_path / ".penstock" / "jobs.env").write_text("PENSTOCK_LOG_TABLE=the-log\n")
    os.mkfifo(tmp_path / "fifo")
    for name, script in {
        "tell": TELL,
        "fail": FAIL,
        "count": RESULT,
        "wait": WAIT.format(fifo=str(tmp_path / "fifo")),
    }.items():
        (tmp_path / "glue_jobs" / f"{name}.py").write_text(script)
    for variable in ("PENSTOCK_TOPICS_TABLE", "PENSTOCK_STACK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def place(checkout: Path) -> LocalPlace:
    return LocalPlace(checkout, cores=2, memory="1g")


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["jobs", *arguments])


def until(place: LocalPlace, run_id: str, is_so: Callable[[JobRun], bool]) -> JobRun:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so(found := place.find(run_id)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_run_gets_its_arguments_the_storage_and_a_spark_of_this_machine(checkout: Path) -> None:
    done = run_command("run", "tell", "--local", "--wait", "--json", "--cores", "2", "--topic", "orders")
    assert done.exit_code == 0, done.output
    ended = json.loads(done.stdout)
    assert (ended["job"], ended["where"], ended["state"]) == ("tell", "local", "succeeded")
    told = json.loads(ended["detail"])
    assert told["arguments"] == ["--topic", "orders"]
    assert told["environment"]["PENSTOCK_LOG_TABLE"] == "the-log"
    assert told["environment"]["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert told["environment"]["PYSPARK_SUBMIT_ARGS"].startswith("--master local[2] --driver-memory 2g ")
    assert str(checkout / "glue_jobs") in told["environment"]["PYTHONPATH"].split(os.pathsep)


def test_result_of_a_run_is_shown_for_people(checkout: Path) -> None:
    done = run_command("run", "count", "--local", "--wait")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.stdout.splitlines()]
    for row in (["refs before", "4,096"], ["is dry run", "yes"], ["topics", '["a"]']):
        assert row in rows
    assert "refs before 4,096, is dry run yes" in run_command("status", "count").stdout


def test_usage_of_a_job_is_its_own_and_starts_nothing(checkout: Path, place: LocalPlace) -> None:
    done = run_command("run", "tell", "--", "--help")
    assert (done.exit_code, json.loads(done.stdout)["arguments"]) == (0, ["--help"])
    assert place.runs() == []


def test_name_of_a_job_stands_for_its_latest_run(checkout: Path) -> None:
    for topic in ("bills", "orders"):
        assert run_command("run", "tell", "--local", "--wait", topic).exit_code == 0
    [line] = [line for line in run_command("logs", "tell").stdout.splitlines() if "arguments" in line]
    assert json.loads(line)["arguments"] == ["orders"]


def test_run_that_fails_says_its_last_line_and_ends_the_command_with_1(checkout: Path) -> None:
    done = run_command("run", "fail", "--local", "--wait")
    assert done.exit_code == 1
    assert "fail failed: local-" in done.stdout
    assert "(the store is on fire)" in done.stdout
    assert "penstock jobs logs local-" in done.stderr


def test_runs_are_listed_shown_and_their_logs_printed(checkout: Path) -> None:
    run_id = json.loads(run_command("run", "tell", "--local", "--wait", "--json").stdout)["run_id"]
    listed: list[Any] = json.loads(run_command("list", "--json").stdout)
    assert {each["job"]: each["latest"] and each["latest"]["run_id"] for each in listed} == {
        "count": None,
        "fail": None,
        "tell": run_id,
        "wait": None,
    }
    assert json.loads(run_command("status", run_id, "--json").stdout)["state"] == "succeeded"
    assert [each["run_id"] for each in json.loads(run_command("status", "--json").stdout)] == [run_id]
    assert "a line for the log" in run_command("logs", run_id).stdout.splitlines()
    assert run_id in run_command("list").stdout
    assert run_id in run_command("status").stdout


def test_status_of_a_run_that_failed_ends_with_1(checkout: Path) -> None:
    run_id = json.loads(run_command("run", "fail", "--local", "--wait", "--json").stdout)["run_id"]
    assert run_command("status", run_id).exit_code == 1


def test_run_goes_on_by_itself_and_ends(checkout: Path, place: LocalPlace) -> None:
    run_id = place.start("wait", []).run_id
    assert place.find(run_id).state is RunState.RUNNING
    (checkout / "fifo").write_text("")  # lets it end
    ended = until(place, run_id, lambda run: run.state.is_over)
    assert ended.state is RunState.SUCCEEDED
    assert ended.ended_at_ms is not None
    assert ended.ended_at_ms >= ended.started_at_ms


def test_run_whose_process_is_killed_has_failed(
    checkout: Path, place: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def watched(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", watched)
    run_id = place.start("wait", []).run_id
    os.killpg(started[0].pid, signal.SIGKILL)
    started[0].wait()
    ended = until(place, run_id, lambda run: run.state.is_over)
    assert (ended.state, ended.detail) == (RunState.FAILED, "its process was killed")


def test_job_that_is_not_there_is_told_with_those_that_are(checkout: Path) -> None:
    done = run_command("run", "compress", "--local")
    assert done.exit_code == 1
    assert "no job 'compress' here: there are count, fail, tell, wait" in done.stderr


@pytest.mark.parametrize("run_id", ["local-1", "local-../../etc"])
def test_run_that_is_not_known_is_told(checkout: Path, run_id: str) -> None:
    done = run_command("logs", run_id)
    assert done.exit_code == 1
    assert f"no run '{run_id}' is known here" in done.stderr


def test_run_without_java_says_how_to_get_it(place: LocalPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PenstockError, match=r"Spark needs Java 17.*JAVA_HOME"):
        place.start("tell", [])


def test_run_without_pyspark_says_how_to_get_it(place: LocalPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobs.local.find_spec", lambda _: None)
    with pytest.raises(PenstockError, match=r"pip install 'penstock\[spark\]'"):
        place.start("tell", [])


def test_run_without_a_stack_says_how_to_get_one(checkout: Path, place: LocalPlace) -> None:
    (checkout / ".penstock" / "jobs.env").unlink()
    with pytest.raises(PenstockError, match="penstock local up"):
        place.start("tell", [])


def test_run_needs_to_be_told_where(checkout: Path) -> None:
    done = run_command("run", "tell")
    assert done.exit_code == 2
    assert "--local, --emr or --glue" in done.stderr
