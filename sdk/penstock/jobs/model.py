"""What a run of a job is, wherever it runs, and what a place to run jobs can do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock_core.errors import ErrorCode, PenstockError


class RunState(Enum):
    """How far a run is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the state stays as it is."""
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
        """As commands print it."""
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
    """Where jobs run."""

    poll_s: float

    def jobs(self) -> Sequence[str]:
        """The names of the jobs that there are, sorted."""

    def start(self, job: str, arguments: Sequence[str]) -> JobRun:
        """Starts a run and does not wait for it."""

    def runs(self) -> Sequence[JobRun]:
        """The runs that the place remembers, latest first."""

    def find(self, run_id: str) -> JobRun:
        """The run as it is now. NOT_FOUND errors name what there is."""

    def logs(self, run_id: str) -> Iterator[str]:
        """The lines that the run has printed so far."""


def unknown_job(job: str, jobs: Sequence[str]) -> PenstockError:
    """What is raised for a job that the place does not have."""
    there_are = f"there are {', '.join(jobs)}" if jobs else "there is none"
    return PenstockError(ErrorCode.INVALID_NAME, f"there is no job {job!r} here: {there_are}")


def unknown_run(run_id: str, where: str) -> PenstockError:
    """What is raised for a run that the place does not remember."""
    return PenstockError(
        ErrorCode.INVALID_NAME,
        f"no run {run_id!r} is known here ({where}): `penstock jobs status` lists those that are",
    )
