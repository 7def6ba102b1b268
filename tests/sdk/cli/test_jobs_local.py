"""Jobs on this machine: how they start, what is recorded of them, and how they end."""

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli import main
from penstock.jobs.local import SCRIPTS, LocalPlace
from penstock.jobs.model import JobRun, RunState
from penstock_core.errors import PenstockError
from tests.support.deadlines import until

TELL = """
import json, os, sys
print("a line for the log", file=sys.stderr)
print(json.dumps({"arguments": sys.argv[1:], "environment": {name: os.environ.get(name, "") for name in (
    "PENSTOCK_LOG_TABLE", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP", "PYTHONPATH", "LD_PRELOAD", "JAVA_TOOL_OPTIONS",
    "SPARK_HOME")}}))
"""
FAIL = "raise SystemExit('the store is on fire')"
RESULT = """print('{"event": "result", "job": "count", "refs_before": 4096, "is_dry_run": true, "failed": ["a", "b"], '
      '"topics": [{"topic": "orders", "archived": 4096, "by": {"zstd": 1}}, {"topic": "bills", "skipped": null}]}')"""
WAIT = "import sys; sys.stdin = open({fifo!r}); sys.stdin.read()"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with scripts that need no Spark, and a local stack's environment."""
    for name in (SCRIPTS, "localstack", ".penstock"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "localstack" / "__main__.py").touch()
    (tmp_path / "app.py").touch()
    (tmp_path / ".penstock").chmod(0o700)
    (tmp_path / ".penstock" / "jobs.env").write_text("PENSTOCK_LOG_TABLE=the-log\n")
    (tmp_path / ".penstock" / "jobs.env").chmod(0o600)
    os.mkfifo(tmp_path / "fifo")
    for name, script in {
        "tell": TELL,
        "fail": FAIL,
        "count": RESULT,
        "wait": WAIT.format(fifo=str(tmp_path / "fifo")),
    }.items():
        (tmp_path / SCRIPTS / f"{name}.py").write_text(script)
    for variable in ("PENSTOCK_TOPICS_TABLE", "PENSTOCK_STACK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def place(checkout: Path) -> LocalPlace:
    return LocalPlace(checkout, cores=2, memory="1g")


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["jobs", *arguments])


def found_until(place: LocalPlace, run_id: str, holds: Callable[[JobRun], bool]) -> JobRun:
    """Look for the run again and again until `holds` is true of it."""
    until(lambda: holds(place.find(run_id)), shown=lambda: place.find(run_id))
    return place.find(run_id)


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
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    wanted = ("refs before 4,096", "is dry run yes", "failed a, b", "topic archived by skipped")
    for row in (*wanted, "orders 4,096 zstd 1 -", "bills - - -"):
        assert row in rows
    assert run_command("status", "count").stdout == done.stdout
    assert "refs before 4,096, is dry run yes, failed a, b, topics 2" in " ".join(run_command("status").stdout.split())


def test_usage_of_a_job_is_its_own_and_starts_nothing(checkout: Path, place: LocalPlace) -> None:
    done = run_command("run", "tell", "--", "--help")
    assert (done.exit_code, json.loads(done.stdout)["arguments"]) == (0, ["--help"])
    assert place.runs() == []


@pytest.mark.slow
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
    ended = found_until(place, run_id, lambda run: run.state.is_over)
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
    ended = found_until(place, run_id, lambda run: run.state.is_over)
    assert (ended.state, ended.detail) == (RunState.FAILED, "its process was killed")


def test_unknown_job_is_refused_with_a_list_of_the_jobs(checkout: Path) -> None:
    done = run_command("run", "compress", "--local")
    assert done.exit_code == 1
    assert "no job 'compress' here: there are count, fail, tell, wait" in done.stderr


@pytest.mark.parametrize("run_id", ["local-1", "local-../../etc"])
def test_unknown_run_is_refused(checkout: Path, run_id: str) -> None:
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


def test_run_gets_only_known_names_of_the_file(
    checkout: Path, place: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {"LD_PRELOAD": "/tmp/evil.so", "JAVA_TOOL_OPTIONS": "-javaagent:evil.jar", "SPARK_HOME": "/tmp/evil"}
    for name in hostile:
        monkeypatch.delenv(name, raising=False)
    lines = "".join(f"{name}={value}\n" for name, value in hostile.items())
    (checkout / ".penstock" / "jobs.env").write_text(f"{lines}PENSTOCK_LOG_TABLE=the-log\n")
    run = place.start("tell", [])
    found_until(place, run.run_id, lambda each: each.state.is_over)
    environment = json.loads([*place.logs(run.run_id)][-1])["environment"]
    assert environment["PENSTOCK_LOG_TABLE"] == "the-log"
    assert {environment[name] for name in hostile} == {""}


def test_run_is_refused_when_others_may_write_to_the_file(checkout: Path, place: LocalPlace) -> None:
    (checkout / ".penstock" / "jobs.env").chmod(0o620)
    with pytest.raises(PenstockError, match=r"other users may write to .*jobs\.env.*chmod go-w"):
        place.start("tell", [])


def test_files_of_a_run_are_for_its_owner_only(checkout: Path, place: LocalPlace) -> None:
    run = place.start("tell", [])
    folder = checkout / ".penstock" / "jobs"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / run.run_id)} == {0o700}
    found_until(place, run.run_id, lambda each: each.state.is_over)


def test_run_without_a_stack_says_how_to_get_one(checkout: Path, place: LocalPlace) -> None:
    (checkout / ".penstock" / "jobs.env").unlink()
    with pytest.raises(PenstockError, match="penstock local up"):
        place.start("tell", [])


def test_run_is_refused_when_no_place_is_given(checkout: Path) -> None:
    done = run_command("run", "tell")
    assert done.exit_code == 2
    assert "--local, --emr or --glue" in done.stderr
