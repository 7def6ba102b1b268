"""The first page: what the service is doing, and what needs a person."""

from concurrent.futures import ThreadPoolExecutor

from penstock.console.account import NOT_COUNTED
from penstock.console.page import Asked, Page, Route, Shown
from penstock.console.tried import tried
from penstock.prices import DATE
from penstock.system import monotonic_ms
from penstock_core.limits import CONSOLE_FIRST_FIGURES_MS_MAX, CONSOLE_TOP_ROWS

_LISTS = 5
# Where the menu has a page for the kind.
CONSUMER_PATHS = {"group": "groups", "share_group": "share-groups", "subscription": "subscriptions"}


def show(asked: Asked) -> Shown:
    """The lists, side by side, and the figures as far as they are read."""
    admin, began_ms = asked.admin, monotonic_ms()
    with ThreadPoolExecutor(_LISTS) as threads:
        zones = threads.submit(tried, admin.list_zones)
        topics = threads.submit(tried, admin.list_topics)
        groups = threads.submit(tried, admin.list_groups)
        share_groups = threads.submit(tried, admin.list_share_groups)
        subscriptions = threads.submit(tried, admin.list_subscriptions)
    account = asked.memory.account
    # Behind the lists: a reading must not hold them up, and their time is part of the wait.
    figures = asked.memory.figures.look(max(0, CONSOLE_FIRST_FIGURES_MS_MAX - (monotonic_ms() - began_ms)))
    return Shown(
        template="overview.html",
        title="Overview",
        facts={
            "zones": zones.result(),
            "topics": topics.result(),
            "consumers": (
                ("Groups", "/groups", groups.result()),
                ("Share groups", "/share-groups", share_groups.result()),
                ("Subscriptions", "/subscriptions", subscriptions.result()),
            ),
            "figures": figures,
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
