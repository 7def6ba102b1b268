"""One topic: its partitions, its settings, and the actions that change or destroy it."""

from collections.abc import Mapping

from penstock.admin.partition_change import preview, records_of, stored_bytes_of
from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import paged
from penstock.console.parsing import TOPIC_DEFAULTS, settings_of
from penstock.errors import InvalidError
from penstock.model import TopicDescription
from penstock_core.errors import ErrorCode
from penstock_core.limits import CONSOLE_FIRST_FIGURES_MS_MAX

# Where the menu has a page for the kind.
CONSUMER_PATHS = {"group": "groups", "share_group": "share-groups", "subscription": "subscriptions"}


def views_of(topic: str) -> list[tuple[str, str]]:
    """The views of a topic, for the tabs: their names and paths."""
    base = path_of("topics", topic)
    names = [("Partitions", ""), ("Records", "/records"), ("Live", "/live"), ("Produce", "/produce")]
    return [
        (name, base + end)
        for name, end in [*names, ("Scheduled", "/scheduled"), ("Hot", "/hot"), ("Settings", "/settings")]
    ]


def show(asked: Asked) -> Shown:
    """The partitions with their offsets: one request. The consumers are those of the last reading of the figures."""
    described = asked.admin.describe_topic(asked.path["topic"])
    figures = asked.memory.figures.look(CONSOLE_FIRST_FIGURES_MS_MAX)
    topic = figures.value.topic(described.topic.name) if figures.value else None
    series = topic.series if topic else ()
    readers = figures.value.readers_of(described.topic.name) if figures.value else ()
    return Shown(
        template="topic.html",
        title=described.topic.name,
        facts={
            "topic": described.topic,
            "views": views_of(described.topic.name),
            "partitions": paged(described.offsets, asked),
            "held": sum(map(records_of, described.offsets)),
            "appended": sum(each.high_watermark for each in described.offsets),
            "records_of": records_of,
            "rate": topic.rate if topic else None,
            "rates": [(each.at_ms, each.rate) for each in series],
            "behind": [(each.at_ms, each.behind) for each in series],
            "figures": figures,
            "readers": paged(readers, asked, name="consumers"),
            "consumer_paths": CONSUMER_PATHS,
            "stored_bytes": stored_bytes_of(described.offsets),
        },
    )


def show_settings(asked: Asked) -> Shown:
    """The forms that alter, truncate and delete."""
    described = asked.admin.describe_topic(asked.path["topic"])
    return Shown(template="topic_settings.html", title=described.topic.name, facts=_settings_facts(described))


def alter(asked: Asked) -> Moved:
    """Change the settings that differ from those of the topic."""
    name = asked.path["topic"]
    topic = asked.admin.describe_topic(name).topic
    changes = settings_of(asked.form, topic.config, TOPIC_DEFAULTS)
    if changes:
        asked.admin.alter_topic(name, changes)
    said = f"Changed {', '.join(changes)}. It holds everywhere within 10 seconds." if changes else "Nothing to change."
    return Moved(to=_settings_path(name), said=said)


def preview_partitions(asked: Asked) -> Shown:
    """What another number of partitions would do."""
    described = asked.admin.describe_topic(asked.path["topic"])
    wanted = asked.number("partitions", described.topic.writable_partitions)
    if wanted == described.topic.writable_partitions or wanted < 1:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"partitions={wanted}: give another number from 1; "
            f"{described.topic.writable_partitions} take new records now",
        )
    return Shown(
        template="topic_partitions.html",
        title=f"{wanted} partitions for {described.topic.name}?",
        facts={"topic": described.topic, "wanted": wanted, "lines": list(preview(described, wanted))},
    )


def set_partitions(asked: Asked) -> Moved:
    """Change the number of partitions."""
    name = asked.path["topic"]
    asked.check_name(name)
    wanted = asked.number("partitions", 0)
    topic = asked.admin.set_partitions(name, wanted)
    return Moved(to=path_of("topics", name), said=f"{topic.writable_partitions} partitions take new records now.")


def truncate(asked: Asked) -> Moved:
    """Remove the records of one partition below an offset."""
    name = asked.path["topic"]
    asked.check_name(name)
    if not asked.word("partition") or not asked.word("before"):
        raise InvalidError(ErrorCode.INVALID_REQUEST, "give the partition, and the offset of the first record to keep")
    partition, before = asked.number("partition", 0), asked.number("before", 0)
    starts = asked.admin.truncate(name, {partition: before})
    return Moved(to=path_of("topics", name), said=f"Partition {partition} starts at offset {starts[partition]:,} now.")


def delete(asked: Asked) -> Moved:
    """Delete the topic and its records."""
    name = asked.path["topic"]
    asked.check_name(name)
    asked.admin.delete_topic(name)
    return Moved(to="/topics", said=f"Deleted {name}.")


def _settings_path(name: str) -> str:
    return path_of("topics", name) + "/settings"


def _settings_facts(described: TopicDescription) -> Mapping[str, object]:
    topic = described.topic
    config = {name: topic.config.get(name, default) for name, default in TOPIC_DEFAULTS.items()}
    return {
        "topic": topic,
        "views": views_of(topic.name),
        "config": config,
        "others": {name: value for name, value in topic.config.items() if name not in TOPIC_DEFAULTS},
        "defaults": TOPIC_DEFAULTS,
        "held": sum(map(records_of, described.offsets)),
    }


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(
        Route(method="GET", path="/topics/{topic}", answer=show),
        Route(method="GET", path="/topics/{topic}/settings", answer=show_settings),
        Route(method="POST", path="/topics/{topic}/settings", answer=alter),
        Route(method="GET", path="/topics/{topic}/partitions", answer=preview_partitions),
        Route(method="POST", path="/topics/{topic}/partitions", answer=set_partitions),
        Route(method="POST", path="/topics/{topic}/truncate", answer=truncate),
        Route(method="POST", path="/topics/{topic}/delete", answer=delete),
    ),
)
