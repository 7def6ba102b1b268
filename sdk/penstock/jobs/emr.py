"""Runs on the stack's EMR Serverless application.

Runs on Glue. A run's own arguments go to the script as one list, next to the storage that the job names.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from penstock.jobs.deployed import DeployedJobs, log_lines, to_ms
from penstock.jobs.model import JobRun, RunState, unknown_job, unknown_run
from penstock_core.errors import ErrorCode, PenstockError

_STATES: Mapping[str, RunState] = {
    "RUNNING": RunState.RUNNING,
    "CANCELLING": RunState.RUNNING,
    "SUCCESS": RunState.SUCCEEDED,
    "FAILED": RunState.FAILED,
    "CANCELLED": RunState.CANCELLED,
}  # every earlier state is pending
_MINUTES_MAX = 720
_RUNS_MAX = 50
PREFIX = "jr_"
_GLUE_STATES: Mapping[str, RunState] = {
    "RUNNING": RunState.RUNNING,
    "STOPPING": RunState.RUNNING,
    "SUCCEEDED": RunState.SUCCEEDED,
    "FAILED": RunState.FAILED,
    "ERROR": RunState.FAILED,
    "TIMEOUT": RunState.FAILED,
    "EXPIRED": RunState.FAILED,
    "STOPPED": RunState.CANCELLED,
}  # every earlier state is pending
_LOGS = ("error", "output")  # Spark's log, and the output of the script


class EmrPlace:
    """Starts runs with the application's defaults; a run adds script, arguments and role."""

    poll_s = 5.0

    def __init__(self, deployed: DeployedJobs, emr: Any, logs: Any) -> None:
        if deployed.application_id is None:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, "the stack has no EMR application: set emr_release and deploy it"
            )
        self._application_id = deployed.application_id
        self._deployed = deployed
        self._emr = emr
        self._logs = logs

    def jobs(self) -> list[str]:
        """The names of the stack's jobs, sorted."""
        return sorted(self._deployed.jobs)

    def start(self, job: str, arguments: Sequence[str]) -> JobRun:
        """One StartJobRun and one GetJobRun."""
        if job not in self._deployed.jobs:
            raise unknown_job(job, self.jobs())
        how = self._deployed.jobs[job]
        answer = self._emr.start_job_run(
            applicationId=self._application_id,
            clientToken=str(uuid.uuid4()),
            executionRoleArn=how.role_arn,
            executionTimeoutMinutes=_MINUTES_MAX,
            jobDriver={"sparkSubmit": {"entryPoint": how.script_url, "entryPointArguments": list(arguments)}},
            name=how.glue_name,
        )
        return self.find(answer["jobRunId"])

    def runs(self) -> list[JobRun]:
        """One ListJobRuns: the latest 50 runs."""
        answer = self._emr.list_job_runs(applicationId=self._application_id, maxResults=_RUNS_MAX)
        return [self._run(found, found["id"]) for found in answer["jobRuns"]]

    def find(self, run_id: str) -> JobRun:
        """One GetJobRun. Raises INVALID_NAME for an unknown run."""
        try:
            answer = self._emr.get_job_run(applicationId=self._application_id, jobRunId=run_id)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("ResourceNotFoundException", "ValidationException"):
                raise unknown_run(run_id, "EMR") from error
            raise
        return self._run(answer["jobRun"], run_id)

    def logs(self, run_id: str) -> Iterator[str]:
        """The lines that the run has printed so far, by time."""
        prefix = f"applications/{self._application_id}/jobs/{run_id}"
        return log_lines(self._logs, self._deployed.log_group, prefix)

    def _run(self, found: Any, run_id: str) -> JobRun:
        state = _STATES.get(found["state"], RunState.PENDING)
        by_glue_name = {how.glue_name: name for name, how in self._deployed.jobs.items()}
        return JobRun(
            run_id=run_id,
            job=by_glue_name.get(found.get("name", ""), found.get("name", "")),
            where="emr",
            state=state,
            started_at_ms=to_ms(found["createdAt"]),
            ended_at_ms=to_ms(found["updatedAt"]) if state.is_over else None,
            detail=found.get("stateDetails", ""),
        )


class GluePlace:
    """Starts the stack's Glue jobs."""

    poll_s = 5.0

    def __init__(self, deployed: DeployedJobs, glue: Any, logs: Any) -> None:
        self._deployed = deployed
        self._glue = glue
        self._logs = logs

    def jobs(self) -> list[str]:
        """The names of the stack's jobs, sorted."""
        return sorted(self._deployed.jobs)

    def start(self, job: str, arguments: Sequence[str]) -> JobRun:
        """One StartJobRun, and a look at the run."""
        if job not in self._deployed.jobs:
            raise unknown_job(job, self.jobs())
        answer = self._glue.start_job_run(
            JobName=self._deployed.jobs[job].glue_name,
            Arguments={"--penstock-arguments": json.dumps(list(arguments))},
        )
        return self.find(answer["JobRunId"])

    def runs(self) -> list[JobRun]:
        """One GetJobRuns per job: the latest 50 runs of each, latest first."""
        found = [
            _run(each, name)
            for name, how in self._deployed.jobs.items()
            for each in self._glue.get_job_runs(JobName=how.glue_name, MaxResults=_RUNS_MAX)["JobRuns"]
        ]
        return sorted(found, key=lambda run: run.started_at_ms, reverse=True)

    def find(self, run_id: str) -> JobRun:
        """Up to one GetJobRun per job. Raises INVALID_NAME for an unknown run."""
        for name, how in self._deployed.jobs.items():
            try:
                answer = self._glue.get_job_run(JobName=how.glue_name, RunId=run_id)
            except ClientError as error:
                if error.response["Error"]["Code"] != "EntityNotFoundException":
                    raise
            else:
                return _run(answer["JobRun"], name)
        raise unknown_run(run_id, "Glue")

    def logs(self, run_id: str) -> Iterator[str]:
        """The lines of Spark's log, then those that the script printed."""
        for each in _LOGS:
            yield from log_lines(self._logs, f"{self._deployed.log_group}/{each}", run_id)


def _run(found: Any, job: str) -> JobRun:
    return JobRun(
        run_id=found["Id"],
        job=job,
        where="glue",
        state=_GLUE_STATES.get(found["JobRunState"], RunState.PENDING),
        started_at_ms=to_ms(found["StartedOn"]),
        ended_at_ms=to_ms(found["CompletedOn"]) if "CompletedOn" in found else None,
        detail=found.get("ErrorMessage", ""),
    )
