"""Runs on Glue. A run's own arguments go to the script as one list, next to the storage that the job names."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from penstock.jobs.deployed import DeployedJobs, client, log_lines, to_ms
from penstock.jobs.model import JobRun, RunState, unknown_job, unknown_run

PREFIX = "jr_"
_STATES: Mapping[str, RunState] = {
    "RUNNING": RunState.RUNNING,
    "STOPPING": RunState.RUNNING,
    "SUCCEEDED": RunState.SUCCEEDED,
    "FAILED": RunState.FAILED,
    "ERROR": RunState.FAILED,
    "TIMEOUT": RunState.FAILED,
    "EXPIRED": RunState.FAILED,
    "STOPPED": RunState.CANCELLED,
}  # every earlier state is pending
_RUNS_MAX = 50
_LOGS = ("error", "output")  # Spark's log, and the output of the script


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

    def s3(self) -> Any:
        """A client of S3 in the region of the stack."""
        return client("s3", self._glue.meta.region_name)


def _run(found: Any, job: str) -> JobRun:
    return JobRun(
        run_id=found["Id"],
        job=job,
        where="glue",
        state=_STATES.get(found["JobRunState"], RunState.PENDING),
        started_at_ms=to_ms(found["StartedOn"]),
        ended_at_ms=to_ms(found["CompletedOn"]) if "CompletedOn" in found else None,
        detail=found.get("ErrorMessage", ""),
    )
