"""Delayed records of a topic that wait, and how to cancel them."""

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.pages.topic import views_of
from penstock.console.paging import paged
from penstock_core.text import counted


def show(asked: Asked) -> Shown:
    """What waits, by partition and due time: one request per thousand."""
    name = asked.path["topic"]
    found = asked.admin.list_scheduled(name)
    return Shown(
        template="scheduled.html",
        title=name,
        facts={
            "topic": name,
            "views": views_of(name),
            "waiting": paged(sorted(found, key=lambda each: (each.deliver_at_ms, each.partition)), asked),
            "records": sum(each.records for each in found),
        },
    )


def cancel(asked: Asked) -> Moved:
    """Cancel what waits under one id."""
    name = asked.path["topic"]
    asked.check_name(name)
    done = asked.admin.cancel_scheduled(name, asked.word("scheduled_id"))
    return Moved(to=path_of("topics", name) + "/scheduled", said=f"Cancelled {counted(done.records, 'record')}.")


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(
        Route(method="GET", path="/topics/{topic}/scheduled", answer=show),
        Route(method="POST", path="/topics/{topic}/scheduled", answer=cancel),
    ),
)
