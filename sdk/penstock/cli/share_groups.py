"""`penstock share-groups`: create, list, describe, alter, reset and delete share groups."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_share_groups, complete_topics
from penstock.cli.offsets import AT, DRY_RUN, PARTITIONS, TO, reset_title, show_resets
from penstock.cli.options.settings import (
    BACK_TO_DEFAULT,
    SHARE_GROUP_DEFAULTS,
    YES,
    config_option,
    confirm,
    dead_letters_option,
    filter_text,
    parse_settings,
    told_settings,
)
from penstock.cli.service import IF_NOT_EXISTS, Service, service_command, told_to_exist
from penstock.model.share import ShareGroup, ShareGroupDescription, ShareHolder
from penstock.model.times import age_text, duration_text
from penstock_core.share.share_group import SHARING_FAIR, TOPICS_LISTED
from penstock_core.text import parse_json, why_no_json


def parse_filter(_: click.Context, __: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """A click callback: the policy as an object, None without one. Raises click.BadParameter."""
    if text is None:
        return None
    try:
        policy = parse_json(filter_text(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r:.100} is not JSON: {why_no_json(error)}") from None
    if not isinstance(policy, dict):
        raise click.BadParameter(f'{text!r:.100}: give a JSON object, such as \'{{"type": ["order"]}}\'')
    return policy


FILTER = click.option(
    "--filter",
    "policy",
    callback=parse_filter,
    metavar="POLICY",
    help="Only the records whose headers match this SNS filter policy, or the one in a file: @policy.json.",
)
NO_NAME = "(no name)"  # of consumers that tell none

_NAMES_SHOWN = 10

CONFIG = config_option("lock_ms=1m or ordering=key")
DEAD_LETTERS = dead_letters_option("records that no consumer can handle")


@click.group("share-groups")
def share_groups() -> None:
    """Create, look at, change and delete share groups: consumers that share the records of a topic."""


@share_groups.command()
@click.argument("group")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@DEAD_LETTERS
@FILTER
@CONFIG
@IF_NOT_EXISTS
@service_command
def create(
    service: Service,
    group: str,
    topics: tuple[str, ...],
    dead_letter_topic: str | None,
    policy: dict[str, Any] | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create the share group GROUP over TOPICS. If it exists, it gets these topics and settings.

    For example: penstock share-groups create packers orders --dead-letters orders.dead
    """
    config = _config(settings, dead_letter_topic, policy)
    admin = Admin(transport=service.transport)
    if not (if_not_exists and told_to_exist(service, group, lambda name: admin.describe_share_group(name).group)):
        _say(service, admin.create_share_group(group, topics, config))


@share_groups.command("list")
@service_command
def list_share_groups(service: Service) -> None:
    """List all share groups.

    For example: penstock share-groups list
    """
    found = Admin(transport=service.transport).list_share_groups()
    service.show(
        [asdict(each) for each in found],
        title="share groups",
        columns=("group", "topic", "ordering", "lock", "deliveries", "dead letters"),
        rows=[
            (
                each.group,
                " ".join(each.topics),
                each.config.get("ordering"),
                _duration(each.config.get("lock_ms")),
                each.config.get("deliveries_max"),
                each.config.get("dead_letter_topic"),
            )
            for each in found
        ],
    )


@share_groups.command()
@click.argument("group", shell_complete=complete_share_groups)
@service_command
def describe(service: Service, group: str) -> None:
    """Show what GROUP has locked, available and waiting in each partition.

    For example: penstock share-groups describe packers
    """
    found = Admin(transport=service.transport).describe_share_group(group)
    service.show(
        {
            **asdict(found.group),
            "partitions": [asdict(each) for each in found.partitions],
            "waiting_age_ms": {**found.waiting_age_ms},
        },
        title=f"{group}; {told_settings(found.group.config, SHARE_GROUP_DEFAULTS)}; "
        f"{sum(each.lag for each in found.partitions)} not finished in all; locks: {_holders_text(found.holders)}"
        f"{_waiting_text(found)}{passed_text(found)}"
        + (f"; {expired} expired" if (expired := sum(each.expired for each in found.partitions)) else ""),
        columns=("topic", "partition", "position", "in flight", "available", "waiting", "lag", "oldest", "by"),
        rows=[
            (
                each.topic,
                each.partition,
                each.position,
                each.in_flight,
                each.available,
                each.waiting,
                each.lag,
                _age(each.oldest_age_ms),
                " ".join(holder.consumer or NO_NAME for holder in each.holders[:_NAMES_SHOWN]) or None,
            )
            for each in found.partitions
        ],
    )


def _waiting_text(found: ShareGroupDescription) -> str:
    """The time that the oldest free record of each topic has waited, the highest topic first; of listed topics only."""
    if found.group.config.get("topic_order") != TOPICS_LISTED:
        return ""
    told = (f"{topic} {_age(age_ms) or '-'}" for topic, age_ms in found.waiting_age_ms.items())
    return f"; waiting: {', '.join(told)}"


def passed_text(found: ShareGroupDescription) -> str:
    """What fair sharing makes wait, and a record of it in each topic, which tells the tenant."""
    if found.group.config.get("sharing") != SHARING_FAIR:
        return ""
    told = [
        f"{each.topic}[{each.partition}] from {each.passed_over_offset}"
        for each in found.partitions
        if each.passed_over
    ]
    count = sum(each.passed_over for each in found.partitions)
    return f"; {count} passed over: {', '.join(told[:_NAMES_SHOWN])}" if told else ""


@share_groups.command()
@click.argument("group", shell_complete=complete_share_groups)
@click.option("--topic", "topics", multiple=True, help="Read this topic in place of the group's; you may repeat this.")
@DEAD_LETTERS
@FILTER
@CONFIG
@BACK_TO_DEFAULT
@service_command
def alter(
    service: Service,
    group: str,
    topics: tuple[str, ...],
    dead_letter_topic: str | None,
    policy: dict[str, Any] | None,
    settings: tuple[str, ...],
    defaults: tuple[str, ...],
) -> None:
    """Change settings or topics of GROUP.

    For example: penstock share-groups alter packers --config deliveries_max=9
    """
    config = _config(settings, dead_letter_topic, policy) | dict.fromkeys(defaults)
    if not (config or topics):
        raise click.UsageError("nothing to change: give --config, --default, --dead-letters, --filter or --topic")
    _say(service, Admin(transport=service.transport).alter_share_group(group, config, topics or None))


@share_groups.command()
@click.argument("group", shell_complete=complete_share_groups)
@click.argument("topic", shell_complete=complete_topics)
@TO
@AT
@click.option("--offset", type=click.IntRange(min=0), help="To this offset.")
@PARTITIONS
@DRY_RUN
@YES
@service_command
def reset(
    service: Service,
    group: str,
    topic: str,
    to: str | None,
    at_ms: int | None,
    offset: int | None,
    partitions: tuple[int, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Hand out the records of TOPIC again from a place on. All locks of these partitions are lost.

    For example: penstock share-groups reset packers orders --to latest --dry-run
    """
    if sum(each is not None for each in (to, at_ms, offset)) != 1:
        raise click.UsageError("give one of --to, --at and --offset")
    if not dry_run:
        confirm(f"Reset share group {group} in {topic}? Consumers lose their locks.", yes=yes)
    done = Admin(transport=service.transport).reset_share_group(
        group, topic, to=to, timestamp_ms=at_ms, offset=offset, partitions=partitions or None, dry_run=dry_run
    )
    show_resets(service, done, title=reset_title(group, dry_run=dry_run), what="position")


@share_groups.command()
@click.argument("group", shell_complete=complete_share_groups)
@YES
@service_command
def delete(service: Service, group: str, yes: bool) -> None:
    """Delete GROUP and its state. All its locks are lost; the records stay.

    For example: penstock share-groups delete packers
    """
    confirm(f"Delete share group {group}?", yes=yes)
    Admin(transport=service.transport).delete_share_group(group)
    service.say({"deleted": group}, f"deleted {group}")


def _config(settings: tuple[str, ...], dead_letter_topic: str | None, policy: dict[str, Any] | None) -> dict[str, Any]:
    config = parse_settings(settings)
    if dead_letter_topic is not None:
        config["dead_letter_topic"] = dead_letter_topic
    if policy is not None:
        config["filter"] = policy
    return config


def _say(service: Service, group: ShareGroup) -> None:
    changed = told_settings(group.config, SHARE_GROUP_DEFAULTS)
    service.say(asdict(group), f"{group.group} over {', '.join(group.topics)}; {changed}")


def _holders_text(holders: Sequence[ShareHolder]) -> str:
    """The consumers with locks, and the records of each."""
    names = [f"{each.consumer or NO_NAME} ({each.records})" for each in holders[:_NAMES_SHOWN]]
    more = len(holders) - len(names)
    return ", ".join([*names, f"and {more} more"] if more else names) or "none"


def _duration(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else duration_text(duration_ms)


def _age(age_ms: int | None) -> str | None:
    return None if age_ms is None else age_text(age_ms)
