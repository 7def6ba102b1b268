"""The list of topics, and a new one."""

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import listed, paged
from penstock.console.parsing import TOPIC_DEFAULTS, changed_settings, settings_of
from penstock_core.limits import CONSOLE_FIRST_FIGURES_MS_MAX


def show_list(asked: Asked) -> Shown:
    """All topics whose names hold the text of the search: one request per thousand topics.

    Their counts and rates are of the last reading of the figures, which asks each topic, within its bound.
    """
    wanted = asked.word("q")
    look = listed(asked, asked.memory.lists.topics, asked.admin.list_topics)
    topics = [each for each in look.value or () if wanted.lower() in each.name.lower()]
    rows = paged(topics, asked)
    changed = {each.name: changed_settings(each.config, TOPIC_DEFAULTS) for each in rows.rows}
    figures = asked.memory.figures.look(CONSOLE_FIRST_FIGURES_MS_MAX)
    return Shown(
        template="topics.html",
        title="Topics",
        facts={
            "topics": rows,
            "changed": changed,
            "look": look,
            "q": wanted,
            "figures": figures,
            "found": {each.name: each for each in (figures.value.topics if figures.value else ())},
            "partitions": sum(each.writable_partitions for each in topics),
        },
    )


def show_form(_: Asked) -> Shown:
    """The form of a new topic."""
    return Shown(template="topic_new.html", title="Create a topic", facts={"defaults": TOPIC_DEFAULTS})


def create(asked: Asked) -> Moved:
    """Create the topic of the form."""
    name = asked.form.get("name", "").strip()
    config = settings_of(asked.form, {}, TOPIC_DEFAULTS)
    topic = asked.admin.create_topic(name, asked.number("partitions", 1), config)
    return Moved(to=path_of("topics", topic.name), said=f"Created {topic.name}.")


PAGE = Page(
    menu="Topics",
    path="/topics",
    routes=(
        Route(method="GET", path="/topics", answer=show_list),
        Route(method="GET", path="/new/topic", answer=show_form),
        Route(method="POST", path="/new/topic", answer=create),
    ),
)
