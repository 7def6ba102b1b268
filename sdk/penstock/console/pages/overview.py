"""The first page: what the service is doing."""

from penstock.console.page import Asked, Page, Route, Shown


def show(asked: Asked) -> Shown:
    """Topics, zones: one request for each list."""
    topics = asked.admin.list_topics()
    return Shown(
        template="overview.html",
        title="Overview",
        facts={"topics": topics, "zones": asked.admin.list_zones()},
    )


PAGE = Page(menu="Overview", path="/", routes=(Route(method="GET", path="/", answer=show),))
