"""`penstock mirrors`: create, list, describe and delete mirrors, promote mirrored topics, begin them anew."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_subscriptions, complete_topics
from penstock.cli.options.settings import YES, confirm
from penstock.cli.service import Service, service_command, time_text
from penstock.model import PromotedPartition, Topic
from penstock.model.push import Subscription
from penstock_core.errors import ErrorCode, PenstockError

_STAGE = "stage"


@click.group()
def mirrors() -> None:
    """Repeat topics in another stage, offset by offset, and let the other stage take over."""


@mirrors.command()
@click.argument("name")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--to", "stage_url", metavar="URL", required=True, help="The URL of the stage that mirrors the topics.")
@click.option("--to-region", metavar="REGION", default="", help="The region of that stage.")
@click.option("--role", metavar="ARN", default="", help="The role of that stage that this one may assume.")
@click.option("--prefix", metavar="TEXT", default="", help="Begin the names of the mirrored topics with this.")
@click.option("--source", metavar="URL", default="", help="The URL of this stage, for clients of the mirror.")
@service_command
def create(
    service: Service,
    name: str,
    topics: tuple[str, ...],
    stage_url: str,
    to_region: str,
    role: str,
    prefix: str,
    source: str,
) -> None:
    """Let another stage mirror TOPICS of this one, under the name NAME. It is a subscription of this stage."""
    made = Admin(transport=service.transport).create_mirror(
        name, topics, stage_url, region=to_region, role=role, prefix=prefix, source=source
    )
    service.say(asdict(made), _text(made))


@mirrors.command("list")
@service_command
def list_mirrors(service: Service) -> None:
    """List the mirrors that this stage pushes to, and the topics of this stage that are mirrors."""
    admin = Admin(transport=service.transport)
    pushed = [each for each in admin.list_subscriptions() if _STAGE in each.target]
    mirrored = [each for each in admin.list_topics() if each.mirror is not None]
    rows: list[Sequence[Any]] = [
        (each.name, "pushes", each.state, " ".join(each.topics), each.target[_STAGE]["url"]) for each in pushed
    ]
    rows += [(each.mirror["name"], "takes", None, each.name, each.mirror["source"]) for each in mirrored if each.mirror]
    service.show(
        {"pushes": [asdict(each) for each in pushed], "mirrored": [_mirrored(each) for each in mirrored]},
        title="mirrors",
        columns=("name", "this stage", "state", "topics", "other stage"),
        rows=rows,
    )


@mirrors.command()
@click.argument("name", shell_complete=complete_subscriptions)
@service_command
def describe(service: Service, name: str) -> None:
    """Show how far the mirror NAME is behind each partition of this stage."""
    found = Admin(transport=service.transport).describe_subscription(name)
    _check_mirror(found.subscription)
    service.show(
        {
            **asdict(found.subscription),
            "lag": found.lag,
            "oldest_age_ms": found.oldest_age_ms,
            "partitions": [asdict(each) for each in found.partitions],
        },
        title=f"{_text(found.subscription)}; lag {found.lag}",
        columns=("topic", "partition", "offset", "lag", "behind", "error"),
        rows=[
            (each.topic, each.partition, each.offset, each.lag, each.oldest_age_ms, each.last_error)
            for each in found.partitions
        ],
    )


@mirrors.command()
@click.argument("name", shell_complete=complete_subscriptions)
@YES
@service_command
def delete(service: Service, name: str, yes: bool) -> None:
    """End the pushes of the mirror NAME. The other stage keeps its topics: promote them there."""
    admin = Admin(transport=service.transport)
    _check_mirror(admin.describe_subscription(name).subscription)
    confirm(f"End the pushes of mirror {name}?", yes=yes)
    admin.delete_subscription(name)
    service.say({"deleted": name}, f"deleted {name}")


@mirrors.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@YES
@service_command
def promote(service: Service, topics: tuple[str, ...], yes: bool) -> None:
    """Let the mirrored TOPICS of this stage take appends. Pushes of their source are refused from then on."""
    admin = Admin(transport=service.transport)
    for topic in topics:
        admin.describe_topic(topic)  # so that a typo promotes none of them
    confirm(f"Promote {', '.join(topics)}? What the source has not pushed stays behind.", yes=yes)
    found = {topic: admin.promote_topic(topic) for topic in topics}
    service.show(
        {topic: [asdict(each) for each in partitions] for topic, partitions in found.items()},
        title="promoted",
        columns=("topic", "partition", "ended at", "newest record"),
        rows=[
            (topic, each.partition, each.promoted_at, _newest(each))
            for topic, partitions in found.items()
            for each in partitions
        ],
    )


@mirrors.command()
@click.argument("topic", shell_complete=complete_topics)
@YES
@service_command
def resync(service: Service, topic: str, yes: bool) -> None:
    """Begin the mirrored TOPIC of this stage anew. Its records go, and the next push brings them from the start."""
    admin = Admin(transport=service.transport)
    confirm(f"Remove the mirrored topic {topic}, and let its mirror begin anew?", yes=yes)
    admin.resync_topic(topic)
    service.say({"resynced": topic}, f"removed {topic}: the next push makes it anew")


def _check_mirror(subscription: Subscription) -> None:
    if _STAGE not in subscription.target:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{subscription.name!r} is a subscription, and no mirror: use `penstock subscriptions`",
        )


def _mirrored(topic: Topic) -> dict[str, Any]:
    return {"topic": topic.name, "mirror": None if topic.mirror is None else dict(topic.mirror)}


def _newest(partition: PromotedPartition) -> str | None:
    return None if partition.appended_ms is None else time_text(partition.appended_ms)


def _text(subscription: Subscription) -> str:
    stage = subscription.target[_STAGE]
    prefix = stage.get("prefix", "")
    return f"{subscription.name} ({subscription.state}) mirrors {', '.join(subscription.topics)} to {stage['url']}" + (
        f", with prefix {prefix!r}" if prefix else ""
    )
