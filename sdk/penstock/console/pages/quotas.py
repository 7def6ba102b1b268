"""Quotas of principals and topics."""

from penstock.console.page import Asked, Moved, Page, Route, Shown
from penstock.console.paging import paged
from penstock_core.quotas.quota import STORED_BYTES, Count, Rate

RATES = tuple(map(str, Rate))
COUNTS = tuple(map(str, (*Count, STORED_BYTES)))
SUBJECTS = ("principal", "topic")


def show(asked: Asked) -> Shown:
    """All quotas whose names hold the text of the search."""
    wanted = asked.word("q")
    found = [each for each in asked.admin.list_quotas() if wanted.lower() in each.name.lower()]
    return Shown(
        template="quotas.html",
        title="Quotas",
        facts={
            "quotas": paged(found, asked),
            "q": wanted,
            "rates": RATES,
            "counts": COUNTS,
            "subjects": [(s, s) for s in SUBJECTS],
        },
    )


def put(asked: Asked) -> Moved:
    """Set all limits of the form; those that are empty are taken away."""
    limits = {limit: asked.number(limit, 0) for limit in (*RATES, *COUNTS) if asked.word(limit)}
    is_shared = asked.word("shared") == "yes"
    done = asked.admin.set_quota(asked.word("subject"), asked.word("name"), limits, shared=is_shared)
    return Moved(to="/quotas", said=f"Set the quota of {done.subject} {done.name}. It holds within 30 seconds.")


def delete(asked: Asked) -> Moved:
    """Delete a quota: the default holds from then on."""
    name = asked.word("name")
    asked.check_name(name)
    asked.admin.delete_quota(asked.word("subject"), name)
    return Moved(to="/quotas", said=f"Deleted the quota of {asked.word('subject')} {name}.")


PAGE = Page(
    menu="Quotas",
    path="/quotas",
    routes=(
        Route(method="GET", path="/quotas", answer=show),
        Route(method="POST", path="/quotas/set", answer=put),
        Route(method="POST", path="/quotas/delete", answer=delete),
    ),
)
