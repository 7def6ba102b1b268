"""Share groups: what is locked, and by whom, available and waiting, a new one, and a reset that shows what it does."""

from typing import Any

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import listed, paged
from penstock.console.parsing import duration_of, names_of, typed_ms
from penstock.errors import InvalidError, NotFoundError
from penstock.metrics.collector import SHARE_GROUP
from penstock_core.errors import ErrorCode, shown
from penstock_core.limits import CONSOLE_FIRST_FIGURES_MS_MAX
from penstock_core.share.share_group import CHOICES, TOPICS_LISTED, ShareGroupConfig

_FIELDS = ("topic", "partition", "to", "time", "offset")


def show_list(asked: Asked) -> Shown:
    """All share groups whose names hold the text of the search: one request per hundred.

    Their counts are of the last reading of the figures, which asks each group, within its bound.
    """
    wanted = asked.word("q")
    look = listed(asked, asked.memory.lists.share_groups, asked.admin.list_share_groups)
    found = [each for each in look.value or () if wanted.lower() in each.group.lower()]
    figures = asked.memory.figures.look(CONSOLE_FIRST_FIGURES_MS_MAX)
    known = figures.value.consumers if figures.value else ()
    facts = {
        "groups": paged(found, asked),
        "look": look,
        "q": wanted,
        "figures": figures,
        "found": {each.name: each for each in known if each.kind == SHARE_GROUP},
    }
    return Shown(template="share_groups.html", title="Share groups", facts=facts)


def show_form(_: Asked) -> Shown:
    """The form of a new share group."""
    facts = {"defaults": ShareGroupConfig(), **CHOICES}
    return Shown(template="share_group_new.html", title="Create a share group", facts=facts)


def create(asked: Asked) -> Moved:
    """Create the share group of the form. One that is there already is not changed."""
    name = asked.word("name")
    try:
        asked.admin.describe_share_group(name)
    except NotFoundError:
        pass
    else:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"there is a share group {shown(name)} already: change it by `penstock share-groups alter`, or give "
            "another name",
        )
    config: dict[str, Any] = {
        field: asked.word(field) for field in ("ordering", "start", "sharing") if asked.word(field)
    }
    if letters := asked.word("dead_letter_topic"):
        config["dead_letter_topic"] = letters
    if asked.word("deliveries_max"):
        config["deliveries_max"] = asked.number("deliveries_max", 0)
    if asked.word("fair_by"):
        config["fair_by"] = asked.word("fair_by")
    if lock := asked.word("lock_ms"):
        config["lock_ms"] = duration_of(lock)
    made = asked.admin.create_share_group(name, names_of(asked.word("topics")), config)
    return Moved(to=path_of("share-groups", made.group), said=f"Created {made.group}.")


def show(asked: Asked) -> Shown:
    """One share group and its partitions."""
    found = asked.admin.describe_share_group(asked.path["group"])
    return Shown(
        template="share_group.html",
        title=found.group.group,
        facts={
            "group": found.group,
            "partitions": paged(found.partitions, asked),
            "holders": paged(found.holders, asked, name="holders"),
            "holders_left_out": sum(each.holders_left_out for each in found.partitions),
            "totals": {
                name: sum(getattr(each, name) for each in found.partitions)
                for name in ("in_flight", "available", "waiting", "lag", "expired", "passed_over")
            },
            "waiting_ages": found.waiting_age_ms if found.group.config.get("topic_order") == TOPICS_LISTED else {},
            "passed": next((each for each in found.partitions if each.passed_over), None),
            "oldest_age_ms": max((each.oldest_age_ms or 0 for each in found.partitions), default=0),
        },
    )


def preview_reset(asked: Asked) -> Shown:
    """The places at which a reset would go on, and the locks that it would take away. Nothing changes."""
    name, topic = asked.path["group"], _topic(asked)
    done = asked.admin.reset_share_group(name, topic, **_target(asked), dry_run=True)
    partitions = asked.admin.describe_share_group(name).partitions
    locked = sum(each.in_flight for each in partitions if each.topic == topic and each.partition in done)
    return Shown(
        template="reset.html",
        title=f"Reset {name}?",
        facts={
            "group": name,
            "parent": ("Share groups", "/share-groups"),
            "base": path_of("share-groups", name),
            "warning": f"{locked:,} records of {topic} are locked now. Their consumers lose these locks."
            if locked
            else None,
            "may_force": False,
            "resets": paged(sorted(done.items()), asked),
            "fields": {field: asked.word(field) for field in _FIELDS if asked.word(field)},
            "topic": topic,
        },
    )


def reset(asked: Asked) -> Moved:
    """Hand out records again from a place on."""
    name = asked.path["group"]
    asked.check_name(name)
    topic = _topic(asked)
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


def _topic(asked: Asked) -> str:
    topic = asked.word("topic")
    if not topic:
        raise InvalidError(ErrorCode.INVALID_REQUEST, "choose the topic whose records are to be handed out again")
    return topic


def _target(asked: Asked) -> dict[str, Any]:
    """The target of a reset, as `Admin.reset_share_group` takes it."""
    to = asked.word("to")
    partitions = [asked.number("partition", 0)] if asked.word("partition") else None
    if to == "time":
        return {"timestamp_ms": typed_ms(asked.word("time"), asked.now_ms), "partitions": partitions}
    if to == "offset":
        return {"offset": asked.number("offset", 0), "partitions": partitions}
    if to not in ("earliest", "latest"):
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"to={shown(to)}: choose earliest, latest, time or offset")
    return {"to": to, "partitions": partitions}


PAGE = Page(
    menu="Share groups",
    path="/share-groups",
    routes=(
        Route(method="GET", path="/share-groups", answer=show_list),
        Route(method="GET", path="/new/share-group", answer=show_form),
        Route(method="POST", path="/new/share-group", answer=create),
        Route(method="GET", path="/share-groups/{group}", answer=show),
        Route(method="GET", path="/share-groups/{group}/reset", answer=preview_reset),
        Route(method="POST", path="/share-groups/{group}/reset", answer=reset),
        Route(method="POST", path="/share-groups/{group}/delete", answer=delete),
    ),
)
