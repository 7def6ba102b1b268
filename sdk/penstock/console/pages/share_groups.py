"""Share groups: what is locked, available and waiting, and a reset."""

from typing import Any

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import paged
from penstock.console.parsing import time_of
from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode, shown


def show_list(asked: Asked) -> Shown:
    """All share groups whose names hold the text of the search: one request per hundred."""
    wanted = asked.word("q")
    found = [each for each in asked.admin.list_share_groups() if wanted.lower() in each.group.lower()]
    return Shown(template="share_groups.html", title="Share groups", facts={"groups": paged(found, asked), "q": wanted})


def show(asked: Asked) -> Shown:
    """One share group and its partitions."""
    found = asked.admin.describe_share_group(asked.path["group"])
    return Shown(
        template="share_group.html",
        title=found.group.group,
        facts={
            "group": found.group,
            "partitions": paged(found.partitions, asked),
            "totals": {
                name: sum(getattr(each, name) for each in found.partitions)
                for name in ("in_flight", "available", "waiting", "lag")
            },
            "oldest_age_ms": max((each.oldest_age_ms or 0 for each in found.partitions), default=0),
        },
    )


def reset(asked: Asked) -> Moved:
    """Hand out records again from a place on."""
    name = asked.path["group"]
    asked.check_name(name)
    topic = asked.word("topic")
    done = asked.admin.reset_share_group(name, topic, **_target(asked))
    places = ", ".join(f"{partition}: {each.new_offset:,}" for partition, each in [*sorted(done.items())][:5])
    more = f" and {len(done) - 5} more" if len(done) > 5 else ""
    return Moved(to=path_of("share-groups", name), said=f"{topic} goes on at {places}{more}.")


def delete(asked: Asked) -> Moved:
    """Delete the share group and its state."""
    name = asked.path["group"]
    asked.check_name(name)
    asked.admin.delete_share_group(name)
    return Moved(to="/share-groups", said=f"Deleted {name}.")


def _target(asked: Asked) -> dict[str, Any]:
    to = asked.word("to")
    if to == "time":
        return {"timestamp_ms": time_of(asked.word("time"), asked.now_ms)}
    if to not in ("earliest", "latest"):
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"to={shown(to)}: choose earliest, latest or time")
    return {"to": to}


PAGE = Page(
    menu="Share groups",
    path="/share-groups",
    routes=(
        Route(method="GET", path="/share-groups", answer=show_list),
        Route(method="GET", path="/share-groups/{group}", answer=show),
        Route(method="POST", path="/share-groups/{group}/reset", answer=reset),
        Route(method="POST", path="/share-groups/{group}/delete", answer=delete),
    ),
)
