"""Subscriptions: how far each is, what happened to its deliveries, a new one, pause and resume. Mirrors among them."""

from typing import Any

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import listed, paged
from penstock.console.parsing import names_of
from penstock.errors import InvalidError, NotFoundError
from penstock.model.push import Subscription, mirrored_topics
from penstock_core.errors import ErrorCode, shown
from penstock_core.push.subscription import LATEST, ORDERED, PARALLEL, STARTS
from penstock_core.push.targets.target import KINDS


def show_list(asked: Asked) -> Shown:
    """All subscriptions whose names hold the text of the search: one request per hundred."""
    wanted = asked.word("q")
    look = listed(asked, asked.memory.lists.subscriptions, asked.admin.list_subscriptions)
    found = [each for each in look.value or () if wanted.lower() in each.name.lower()]
    return Shown(
        template="subscriptions.html",
        title="Subscriptions",
        facts={"subscriptions": paged(found, asked), "look": look, "q": wanted, "target_of": target_of},
    )


def show_mirrors(asked: Asked) -> Shown:
    """The topics that other stages mirror, how far each is, and those that another stage writes or has taken over.

    One request per hundred subscriptions and per thousand topics, and one for each mirror on the page.
    """
    topics = asked.admin.list_topics()
    mirrors = paged([each for each in asked.admin.list_subscriptions() if "stage" in each.target], asked)
    described = [asked.admin.describe_subscription(each.name) for each in mirrors.rows]
    return Shown(
        template="mirrors.html",
        title="Mirrors",
        facts={
            "mirrors": mirrors,
            "pushed": [(found.subscription, each) for found in described for each in mirrored_topics(found, topics)],
            "taken": [each for each in topics if each.mirror is not None],
            "moved": [each for each in topics if each.move is not None and each.move["state"] != "open"],
        },
    )


def show_form(_: Asked) -> Shown:
    """The form of a new subscription."""
    facts = {"kinds": KINDS, "modes": (ORDERED, PARALLEL), "starts": STARTS, "start": LATEST}
    return Shown(template="subscription_new.html", title="Create a subscription", facts=facts)


def create(asked: Asked) -> Moved:
    """Create the subscription of the form. One that is there already is not changed."""
    name = asked.word("name")
    try:
        asked.admin.describe_subscription(name)
    except NotFoundError:
        pass
    else:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"there is a subscription {shown(name)} already: change it by `penstock subscriptions alter`, or give "
            "another name",
        )
    kind, place = asked.word("kind"), asked.word("place")
    target = {kind: {"url": place, "secret": asked.word("secret")} if kind == "https" else place}
    config: dict[str, Any] = {field: asked.word(field) for field in ("mode", "start") if asked.word(field)}
    if letters := asked.word("dead_letter_topic"):
        config["dead_letter_topic"] = letters
    if asked.word("batch_records"):
        config["batch_records"] = asked.number("batch_records", 0)
    if asked.word("attempts_max"):
        config["retry"] = {"attempts_max": asked.number("attempts_max", 0)}
    made = asked.admin.put_subscription(name, names_of(asked.word("topics")), target, config)
    return Moved(to=path_of("subscriptions", made.name), said=f"Created {made.name}.")


def show(asked: Asked) -> Shown:
    """One subscription, and the result of the last delivery of each partition."""
    found = asked.admin.describe_subscription(asked.path["name"])
    config = found.subscription.config
    settings = {name: value for name, value in config.items() if name != "retry"}
    retry = config.get("retry", {})
    return Shown(
        template="subscription.html",
        title=found.subscription.name,
        facts={
            "found": found,
            "subscription": found.subscription,
            "partitions": paged(found.partitions, asked),
            "target_of": target_of,
            "settings": {**settings, **retry},
        },
    )


def pause(asked: Asked) -> Moved:
    """Begin no further delivery."""
    found = asked.admin.pause_subscription(asked.path["name"])
    return Moved(to=path_of("subscriptions", found.name), said="Paused. A delivery that runs may go on for a minute.")


def resume(asked: Asked) -> Moved:
    """Go on where the subscription was."""
    found = asked.admin.resume_subscription(asked.path["name"])
    return Moved(to=path_of("subscriptions", found.name), said="It goes on where it was.")


def delete(asked: Asked) -> Moved:
    """Delete the subscription; the records stay."""
    name = asked.path["name"]
    asked.check_name(name)
    asked.admin.delete_subscription(name)
    return Moved(to="/subscriptions", said=f"Deleted {name}.")


def target_of(subscription: Subscription) -> tuple[str, str]:
    """The kind of the target and its place, without a secret."""
    for kind, place in subscription.target.items():
        return kind, str(place.get("url", "")) if isinstance(place, dict) else str(place)
    return "none", ""


PAGE = Page(
    menu="Subscriptions",
    path="/subscriptions",
    routes=(
        Route(method="GET", path="/subscriptions", answer=show_list),
        Route(method="GET", path="/new/subscription", answer=show_form),
        Route(method="POST", path="/new/subscription", answer=create),
        Route(method="GET", path="/subscriptions/{name}", answer=show),
        Route(method="POST", path="/subscriptions/{name}/pause", answer=pause),
        Route(method="POST", path="/subscriptions/{name}/resume", answer=resume),
        Route(method="POST", path="/subscriptions/{name}/delete", answer=delete),
    ),
)
MIRRORS = Page(menu="Mirrors", path="/mirrors", routes=(Route(method="GET", path="/mirrors", answer=show_mirrors),))
