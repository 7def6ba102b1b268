"""The first page: what the service is doing, and what needs a person."""

from penstock.console.account import NOT_COUNTED
from penstock.console.page import Asked, Page, Route, Shown
from penstock.console.pages.topic import CONSUMER_PATHS
from penstock.prices import DATE
from penstock.system import monotonic_ms
from penstock_core.limits import CONSOLE_FIRST_FIGURES_MS_MAX, CONSOLE_LISTS_MS_MAX, CONSOLE_TOP_ROWS


def show(asked: Asked) -> Shown:
    """The lists and the figures that are read."""
    began_ms = monotonic_ms()
    listed = asked.memory.lists.look(CONSOLE_LISTS_MS_MAX)
    account = asked.memory.account
    # Behind the lists: a reading must not hold them up, and their time is part of the wait.
    figures = asked.memory.figures.look(max(0, CONSOLE_FIRST_FIGURES_MS_MAX - (monotonic_ms() - began_ms)))
    return Shown(
        template="overview.html",
        title="Overview",
        facts={
            "zones": listed.zones,
            "topics": listed.topics,
            "consumers": (
                ("Groups", "/groups", listed.groups),
                ("Share groups", "/share-groups", listed.share_groups),
                ("Subscriptions", "/subscriptions", listed.subscriptions),
            ),
            "figures": figures,
            "errors": sorted({each.error for each in listed.looks if each.error is not None}),
            "is_listing": any(each.is_reading for each in listed.looks),
            "account": None if account is None else account.look(0),
            "has_account": account is not None,
            "is_local": asked.memory.is_local,
            "rows_max": CONSOLE_TOP_ROWS,
            "not_counted": NOT_COUNTED,
            "prices_of": DATE,
            "consumer_paths": CONSUMER_PATHS,
        },
    )


PAGE = Page(menu="Overview", path="/", routes=(Route(method="GET", path="/", answer=show),))
