"""Schedules: when each runs next, what happened to its last run; enable, disable and delete."""

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import paged
from penstock.model.schedules import Schedule


def show_list(asked: Asked) -> Shown:
    """All schedules whose names hold the text of the search: one request per hundred."""
    wanted = asked.word("q")
    found = [each for each in asked.admin.list_schedules() if wanted.lower() in each.name.lower()]
    return Shown(template="schedules.html", title="Schedules", facts={"schedules": paged(found, asked), "q": wanted})


def show(asked: Asked) -> Shown:
    """One schedule, its record, its next run and its last one."""
    found = asked.admin.describe_schedule(asked.path["name"])
    return Shown(template="schedule.html", title=found.name, facts={"schedule": found, "late_ms": late_ms(found)})


def enable(asked: Asked) -> Moved:
    """Run at the next time from now on."""
    return _switched(asked, "It runs at its next time.", enabled=True)


def disable(asked: Asked) -> Moved:
    """Rest."""
    return _switched(asked, "It rests. What it would send meanwhile never comes.", enabled=False)


def delete(asked: Asked) -> Moved:
    """Delete the schedule; its records stay."""
    name = asked.path["name"]
    asked.check_name(name)
    asked.admin.delete_schedule(name)
    return Moved(to="/schedules", said=f"Deleted {name}.")


def late_ms(schedule: Schedule) -> int | None:
    """The lateness of the last record, None before the first."""
    if schedule.last_run_ms is None or schedule.last_due_ms is None:
        return None
    return max(0, schedule.last_run_ms - schedule.last_due_ms)


def _switched(asked: Asked, said: str, *, enabled: bool) -> Moved:
    name = asked.path["name"]
    asked.admin.describe_schedule(name)  # a put of an unknown name would ask for a new one
    asked.admin.put_schedule(name, enabled=enabled)
    return Moved(to=path_of("schedules", name), said=said)


PAGE = Page(
    menu="Schedules",
    path="/schedules",
    routes=(
        Route(method="GET", path="/schedules", answer=show_list),
        Route(method="GET", path="/schedules/{name}", answer=show),
        Route(method="POST", path="/schedules/{name}/enable", answer=enable),
        Route(method="POST", path="/schedules/{name}/disable", answer=disable),
        Route(method="POST", path="/schedules/{name}/delete", answer=delete),
    ),
)
