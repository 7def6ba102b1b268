from collections.abc import Iterator, Sequence

import pytest
from botocore.exceptions import NoCredentialsError

from penstock.jobs.model import JobRun, RunState, unknown_run
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import HOSTILE, forbidden_in
from tests.sdk.console.visitor import Visitor

RUN = JobRun(
    run_id="local-1",
    job="compact",
    where="local",
    state=RunState.FAILED,
    started_at_ms=1_000,
    ended_at_ms=62_000,
    detail="<b>boom",
)


class Place:
    """A place that remembers one run, with a long and hostile log."""

    poll_s = 0.0

    def jobs(self) -> Sequence[str]:
        return ["compact"]

    def runs(self) -> Sequence[JobRun]:
        return [RUN]

    def start(self, job: str, arguments: Sequence[str]) -> JobRun:
        raise AssertionError("the console starts nothing")

    def find(self, run_id: str) -> JobRun:
        if run_id != RUN.run_id:
            raise unknown_run(run_id, "local")
        return RUN

    def logs(self, run_id: str) -> Iterator[str]:
        yield from (f"line {number}" for number in range(1_000))
        yield from HOSTILE


def broken() -> Place:
    raise NoCredentialsError


@pytest.fixture
def visitor(service: MemoryPenstock) -> Iterator[Visitor]:
    places = {"local": Place, "emr": broken}
    console = RunningConsole(service.transport, job_places=places)
    yield console.visitor()
    console.stop()


def test_runs_are_listed_with_their_ends(visitor: Visitor) -> None:
    seen = visitor.get("/jobs")
    assert "compact failed 1970-01-01 00:00:01 1 min 1 s local-1 <b>boom" in seen.text
    assert "<b>boom" not in seen.html


def test_run_shows_the_end_of_its_log_as_text(visitor: Visitor) -> None:
    seen = visitor.get("/jobs/local/local-1")
    assert "line 999" in seen.text
    assert "line 100 " not in seen.text
    assert forbidden_in(seen.html) == []


@pytest.mark.parametrize(("path", "status"), [("/jobs/local/x", 400), ("/jobs/x/y", 400), ("/jobs?where=emr", 503)])
def test_what_is_not_there_is_told(visitor: Visitor, path: str, status: int) -> None:
    seen = visitor.get(path)
    assert seen.status == status
    assert "defect" not in seen.text
