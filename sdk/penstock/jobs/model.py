"""A run of a job, wherever it runs, and the interface of the places that run jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock_core.errors import ErrorCode, PenstockError


class RunState(Enum):
    """The state of a run."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """The state stays as it is."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run. `detail` is what the place says of its state, empty if nothing."""

    run_id: str
    job: str
    where: str
    state: RunState
    started_at_ms: int
    ended_at_ms: int | None = None
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        """The run as commands print it."""
        return {
            "run_id": self.run_id,
            "job": self.job,
            "where": self.where,
            "state": self.state.value,
            "started_at_ms": self.started_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "detail": self.detail,
        }


class JobPlace(Protocol):
    """A place that runs jobs."""

    poll_s: float

    def jobs(self) -> Sequence[str]:
        """The names of the jobs, sorted."""

    def start(self, job: str, arguments: Sequence[str]) -> JobRun:
        """Start a run, and do not wait for it."""

    def runs(self) -> Sequence[JobRun]:
        """The runs that the place remembers, latest first."""

    def find(self, run_id: str) -> JobRun:
        """The run as it is now. Raises INVALID_NAME for an unknown run, and says where to look."""

    def logs(self, run_id: str) -> Iterator[str]:
        """The lines that the run has printed so far."""


def unknown_job(job: str, jobs: Sequence[str]) -> PenstockError:
    """The error for a job that the place does not have."""
    there_are = f"there are {', '.join(jobs)}" if jobs else "there is none"
    return PenstockError(ErrorCode.INVALID_NAME, f"there is no job {job!r} here: {there_are}")


def unknown_run(run_id: str, where: str) -> PenstockError:
    """The error for a run that the place does not remember."""
    return PenstockError(
        ErrorCode.INVALID_NAME,
        f"no run {run_id!r} is known here ({where}): `penstock jobs status` lists the known runs",
    )
