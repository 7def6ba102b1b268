"""Jobs on EMR Serverless and Glue: exactly the calls that AWS's own models allow, and their answers as runs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.stub import ANY, Stubber
from click.testing import CliRunner, Result

from penstock.cli import main
from penstock.jobs.deployed import client

STARTED = datetime(2026, 11, 21, 7, 30, tzinfo=UTC)
ENDED = datetime(2026, 11, 21, 7, 45, tzinfo=UTC)
RUN_ARN = "arn:aws:emr-serverless:us-east-1:123456789012:/applications/00fapp/jobruns/00frun"
STARTED_MS = 1_795_246_200_000
OUTPUTS = {
    "ApiUrl": "https://api",
    "JobsLogGroup": "/penstock/penstock/jobs",
    "JobsApplicationId": "00fapp",
    "JobSweepRole": "arn:aws:iam::123456789012:role/sweep",
    "JobSweepScript": "s3://assets/sweep.py",
    "JobSweepGlue": "penstock-sweep",
}


@dataclass(frozen=True)
class Cloud:
    """Stubbed clients, by service."""

    stubs: dict[str, Stubber]

    def answers(self, service: str, operation: str, answer: dict[str, Any], request: dict[str, Any]) -> None:
        self.stubs[service].add_response(operation, answer, request)

    def deployed(self, outputs: dict[str, str], stack: str = "Penstock") -> None:
        found = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        described = {"StackName": stack, "CreationTime": STARTED, "StackStatus": "CREATE_COMPLETE", "Outputs": found}
        self.answers("cloudformation", "describe_stacks", {"Stacks": [described]}, {"StackName": stack})


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.delenv("PENSTOCK_STACK", raising=False)
    session = botocore.session.Session()
    session.set_credentials("key", "secret")
    clients = {
        name: session.create_client(name, region_name="us-east-1")
        for name in ("cloudformation", "emr-serverless", "glue", "logs")
    }
    stubs = {name: Stubber(client) for name, client in clients.items()}
    for stub in stubs.values():
        stub.activate()
    monkeypatch.setattr("penstock.jobs.deployed.client", lambda service, region: clients[service])
    monkeypatch.setattr("penstock.jobs.emr.EmrPlace.poll_s", 0)
    monkeypatch.setattr("penstock.jobs.emr.GluePlace.poll_s", 0)
    yield Cloud(stubs)
    for stub in stubs.values():
        stub.assert_no_pending_responses()


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["jobs", *arguments])


def emr_run(state: str, details: str = "-") -> dict[str, Any]:
    return {
        "jobRun": {
            "applicationId": "00fapp", "jobRunId": "00frun", "arn": RUN_ARN,
            "createdBy": "arn:aws:iam::123456789012:user/x", "createdAt": STARTED, "updatedAt": ENDED,
            "executionRole": OUTPUTS["JobSweepRole"], "state": state, "stateDetails": details, "name": "penstock-sweep",
            "releaseLabel": "emr-spark-8.0.0", "jobDriver": {"sparkSubmit": {"entryPoint": "s3://assets/sweep.py"}},
        }
    }  # fmt: skip


ASKED = {"applicationId": "00fapp", "jobRunId": "00frun"}


def start_on_emr(cloud: Cloud, *arguments: str) -> None:
    cloud.deployed(OUTPUTS)
    cloud.answers(
        "emr-serverless",
        "start_job_run",
        {"applicationId": "00fapp", "jobRunId": "00frun", "arn": RUN_ARN},
        {
            "applicationId": "00fapp",
            "clientToken": ANY,
            "executionRoleArn": OUTPUTS["JobSweepRole"],
            "executionTimeoutMinutes": 720,
            "jobDriver": {
                "sparkSubmit": {"entryPoint": "s3://assets/sweep.py", "entryPointArguments": list(arguments)}
            },
            "name": "penstock-sweep",
        },
    )


def test_run_on_emr_is_waited_for(cloud: Cloud) -> None:
    start_on_emr(cloud, "--checksums")
    for state in ("SCHEDULED", "RUNNING", "SUCCESS"):
        cloud.answers("emr-serverless", "get_job_run", emr_run(state), ASKED)
    done = run_command("run", "sweep", "--emr", "--wait", "--json", "--checksums")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "run_id": "00frun",
        "job": "sweep",
        "where": "emr",
        "state": "succeeded",
        "started_at_ms": STARTED_MS,
        "ended_at_ms": STARTED_MS + 900_000,
        "detail": "-",
    }


def test_run_on_emr_that_fails_ends_the_command_with_1(cloud: Cloud) -> None:
    start_on_emr(cloud)
    cloud.answers("emr-serverless", "get_job_run", emr_run("FAILED", "exit 1"), ASKED)
    done = run_command("run", "sweep", "--emr", "--wait")
    assert done.exit_code == 1
    assert "sweep failed: 00frun (exit 1)" in done.stdout


def test_run_is_shown_at_once_without_wait(cloud: Cloud) -> None:
    start_on_emr(cloud)
    cloud.answers("emr-serverless", "get_job_run", emr_run("SUBMITTED"), ASKED)
    done = run_command("run", "sweep", "--emr")
    assert (done.exit_code, done.stdout) == (0, "sweep pending: 00frun (-)\n")


def test_runs_of_emr_are_listed(cloud: Cloud) -> None:
    cloud.deployed(OUTPUTS)
    found = {
        key: value for key, value in emr_run("CANCELLED")["jobRun"].items() if key not in ("jobRunId", "jobDriver")
    }
    answer = {"jobRuns": [{**found, "id": "00frun"}]}
    cloud.answers("emr-serverless", "list_job_runs", answer, {"applicationId": "00fapp", "maxResults": 50})
    [listed] = json.loads(run_command("list", "--emr", "--json").stdout)
    assert (listed["job"], listed["latest"]["run_id"], listed["latest"]["state"]) == ("sweep", "00frun", "cancelled")


def test_logs_of_emr_are_the_streams_of_the_run(cloud: Cloud) -> None:
    cloud.deployed(OUTPUTS)
    request = {"logGroupName": OUTPUTS["JobsLogGroup"], "logStreamNamePrefix": "applications/00fapp/jobs/00frun"}
    cloud.answers("logs", "filter_log_events", {"events": [{"message": "one\n"}], "nextToken": "t"}, request)
    cloud.answers("logs", "filter_log_events", {"events": [{"message": "two"}]}, {**request, "nextToken": "t"})
    assert run_command("logs", "00frun").stdout == "one\ntwo\n"


def test_run_on_glue_has_its_arguments_as_one_list(cloud: Cloud) -> None:
    cloud.deployed(OUTPUTS)
    cloud.answers(
        "glue",
        "start_job_run",
        {"JobRunId": "jr_1"},
        {"JobName": "penstock-sweep", "Arguments": {"--penstock-arguments": '["--dry-run"]'}},
    )
    for state, more in (("STARTING", {}), ("TIMEOUT", {"CompletedOn": ENDED, "ErrorMessage": "too long"})):
        answer = {
            "JobRun": {"Id": "jr_1", "JobName": "penstock-sweep", "JobRunState": state, "StartedOn": STARTED, **more}
        }
        cloud.answers("glue", "get_job_run", answer, {"JobName": "penstock-sweep", "RunId": "jr_1"})
    done = run_command("run", "sweep", "--glue", "--wait", "--json", "--dry-run")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["where"], found["state"], found["detail"]) == ("glue", "failed", "too long")


def test_logs_of_glue_are_sparks_log_and_the_scripts_output(cloud: Cloud) -> None:
    cloud.deployed(OUTPUTS)
    for group, line in (("error", "INFO started"), ("output", '{"event": "result"}')):
        request = {"logGroupName": f"/penstock/penstock/jobs/{group}", "logStreamNamePrefix": "jr_1"}
        cloud.answers("logs", "filter_log_events", {"events": [{"message": line}]}, request)
    assert run_command("logs", "jr_1").stdout == 'INFO started\n{"event": "result"}\n'


def test_unknown_run_of_glue_is_refused(cloud: Cloud) -> None:
    cloud.deployed(OUTPUTS)
    cloud.stubs["glue"].add_client_error("get_job_run", "EntityNotFoundException")
    done = run_command("status", "jr_2")
    assert done.exit_code == 1
    assert "no run 'jr_2' is known here (Glue)" in done.stderr


def test_stack_without_an_application_is_refused(cloud: Cloud) -> None:
    cloud.deployed({name: value for name, value in OUTPUTS.items() if name != "JobsApplicationId"}, "PenstockDev")
    done = run_command("run", "sweep", "--emr", "--stack", "PenstockDev")
    assert done.exit_code == 1
    assert "the stack has no EMR application" in done.stderr


def test_missing_stack_is_refused_with_the_way_out(cloud: Cloud) -> None:
    cloud.stubs["cloudformation"].add_client_error("describe_stacks", "ValidationError", "Stack does not exist")
    done = run_command("list", "--glue")
    assert done.exit_code == 1
    assert "stack 'Penstock' could not be read" in done.stderr
    assert "--stack" in done.stderr


def test_refusal_of_aws_is_one_line(cloud: Cloud) -> None:
    cloud.deployed(OUTPUTS)
    cloud.stubs["emr-serverless"].add_client_error("list_job_runs", "AccessDeniedException", "not you")
    done = run_command("status", "--emr", "--json")
    assert done.exit_code == 1
    assert "not you" in json.loads(done.stderr)["error"]["message"]


def test_missing_region_names_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    result = CliRunner().invoke(main, ["jobs", "run", "analyze", "--emr"])
    assert result.exit_code == 1
    assert "give --region, or set AWS_REGION" in result.stderr


def test_region_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert client("cloudformation", None).meta.region_name == "eu-west-1"
