"""The Spark jobs: their runs, and what a run has printed."""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

from penstock.console.page import Asked, Page, Route, Shown
from penstock.console.paging import paged
from penstock.errors import InvalidError
from penstock.jobs.model import JobPlace
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import CONSOLE_LOG_LINES_MAX, CONSOLE_LOG_LINES_READ_MAX

Value = TypeVar("Value")

_KINDS: Mapping[str, str] = {"succeeded": "good", "failed": "bad", "cancelled": "warn"}
_LINE_CHARACTERS_MAX = 2_000


def show_list(asked: Asked) -> Shown:
    """The runs that a place remembers, the latest first."""
    places = asked.memory.job_places
    where = asked.word("where") or next(iter(places), "")
    facts: dict[str, object] = {"where": where, "places": [*places], "kinds": _KINDS, "runs": None, "jobs": ()}
    if where:
        place = _place(asked, where)
        facts["jobs"] = _asked(place.jobs)
        facts["runs"] = paged(_asked(place.runs), asked)
    return Shown(template="jobs.html", title="Jobs", facts=facts)


def show_run(asked: Asked) -> Shown:
    """One run, and the end of its log."""
    where, run_id = asked.path["where"], asked.path["run"]
    place = _place(asked, where)
    run = _asked(lambda: place.find(run_id))
    lines = _asked(lambda: deque(islice(place.logs(run_id), CONSOLE_LOG_LINES_READ_MAX), CONSOLE_LOG_LINES_MAX))
    return Shown(
        template="job_run.html",
        title=f"{run.job} {run.state.value}",
        facts={
            "run": run,
            "kinds": _KINDS,
            "where": where,
            "log": "\n".join(line[:_LINE_CHARACTERS_MAX] for line in lines),
            "is_cut": len(lines) == CONSOLE_LOG_LINES_MAX,
        },
    )


def _place(asked: Asked, where: str) -> JobPlace:
    places = asked.memory.job_places
    if where not in places:
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"{shown(where)} is no place: {', '.join(places) or 'none'}")
    return _asked(places[where])


def _asked(call: Callable[[], Value]) -> Value:
    """The answer of a place, or its error in words: it may be on AWS."""
    try:
        return call()
    except PenstockError:
        raise
    except Exception as error:
        from botocore.exceptions import BotoCoreError, ClientError  # 0.1 s, which other pages need not wait for

        if not isinstance(error, BotoCoreError | ClientError):
            raise
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"AWS refused: {error}") from error


PAGE = Page(
    menu="Jobs",
    path="/jobs",
    routes=(
        Route(method="GET", path="/jobs", answer=show_list),
        Route(method="GET", path="/jobs/{where}/{run}", answer=show_run),
    ),
)
