"""Hot partitions of a topic: the records of the last minutes by partition, the key that is hot, and what helps."""

from penstock.console.decoding import cell
from penstock.console.page import Asked, Page, Route, Shown
from penstock.console.pages.topic import views_of
from penstock.console.paging import paged
from penstock.console.parsing import duration_of

_SINCE = "5m"


def show(asked: Asked) -> Shown:
    """What `penstock topics rebalance` tells. It reads a bounded sample of the hottest partitions."""
    name = asked.path["topic"]
    since = asked.word("since") or _SINCE
    since_ms = duration_of(since)
    heat = asked.admin.topic_heat(name, since_ms)
    return Shown(
        template="hot.html",
        title=name,
        facts={
            "topic_name": name,
            "views": views_of(name),
            "since": since,
            "since_ms": since_ms,
            "counts": paged(sorted(heat.records.items(), key=lambda each: (-each[1], each[0])), asked),
            "hot": {each.partition: each for each in heat.hot},
            "keys": {each.partition: cell(each.key) for each in heat.hot},
            "advice": heat.advice,
        },
    )


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(Route(method="GET", path="/topics/{topic}/hot", answer=show),),
)
