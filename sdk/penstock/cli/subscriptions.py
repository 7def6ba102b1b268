"""`penstock subscriptions`: create, list, describe, alter, pause, resume and delete subscriptions."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_subscriptions, complete_topics
from penstock.cli.options.settings import (
    BACK_TO_DEFAULT,
    SUBSCRIPTION_DEFAULTS,
    YES,
    config_option,
    confirm,
    dead_letters_option,
    parse_settings,
    told_settings,
)
from penstock.cli.options.target import TARGETS, target_of, target_options
from penstock.cli.service import IF_NOT_EXISTS, Service, service_command, time_text, told_to_exist
from penstock.cli.share_groups import FILTER
from penstock.model.push import Subscription, SubscriptionPartition
from penstock.model.times import age_text
from penstock_core.errors import PenstockError

_RETRY = ("attempts_max", "backoff_ms_min", "backoff_ms_max", "patience_ms", "age_ms_max")
CONFIG = config_option("batch_records=10, start=earliest or backoff_ms_max=5m")
DEAD_LETTERS = dead_letters_option("records that the target cannot handle")


@click.group("subscriptions")
def subscriptions() -> None:
    """Create, look at, change and delete subscriptions: deliveries of topics to targets."""


@subscriptions.command()
@click.argument("name")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@target_options
@DEAD_LETTERS
@FILTER
@CONFIG
@IF_NOT_EXISTS
@service_command
def create(
    service: Service,
    name: str,
    topics: tuple[str, ...],
    dead_letter_topic: str | None,
    policy: dict[str, Any] | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    **target: Any,
) -> None:
    """Create the subscription NAME of TOPICS, to one target. If it exists, it gets these topics and settings.

    For example: penstock subscriptions create mails orders --lambda send-mail --dead-letters orders.dead
    """
    config = _config(settings, (), dead_letter_topic, policy)
    chosen = target_of(**target)
    admin = Admin(transport=service.transport)
    if if_not_exists and told_to_exist(service, name, lambda each: admin.describe_subscription(each).subscription):
        return
    try:
        _say(service, admin.put_subscription(name, topics, chosen, config))
    except PenstockError as error:
        if chosen is None and "does not exist yet" in error.message:
            raise click.UsageError(f"{name!r:.100} is new: give it a target, {TARGETS}") from error
        if "target.https" in error.message and not {"secret_file", "secret_env"} & _given(target):
            raise click.UsageError("--https wants the endpoint's secret: give --secret-file or --secret-env") from error
        raise


@subscriptions.command("list")
@service_command
def list_subscriptions(service: Service) -> None:
    """List all subscriptions.

    For example: penstock subscriptions list
    """
    found = Admin(transport=service.transport).list_subscriptions()
    service.show(
        [asdict(each) for each in found],
        title="subscriptions",
        columns=("name", "state", "topic", "target", "mode", "dead letters"),
        rows=[
            (
                each.name,
                each.state,
                " ".join(each.topics),
                _target_text(each),
                each.config["mode"],
                each.config["dead_letter_topic"],
            )
            for each in found
        ],
    )


@subscriptions.command()
@click.argument("name", shell_complete=complete_subscriptions)
@service_command
def describe(service: Service, name: str) -> None:
    """Show how far NAME is in each partition, and the result of the last delivery.

    For example: penstock subscriptions describe mails
    """
    found = Admin(transport=service.transport).describe_subscription(name)
    lanes = found.lanes
    service.show(
        {
            **asdict(found.subscription),
            "lag": found.lag,
            "oldest_age_ms": found.oldest_age_ms,
            "lanes": asdict(lanes),
            "dead_lettered": found.dead_lettered,
            "expired": found.expired,
            "partitions": [asdict(each) for each in found.partitions],
        },
        title=f"{_text(found.subscription)}; lag {found.lag}, oldest {_age(found.oldest_age_ms) or '-'}; "
        f"{lanes.working} deliveries at work, {lanes.resting} at rest, {lanes.deaths} died"
        + ("" if found.dead_lettered is None else f"; {found.dead_lettered} dead-lettered")
        + (f"; {found.expired} expired" if found.expired else ""),
        columns=("topic", "partition", "offset", "lag", "oldest", "result", "attempts", "next try", "dead", "error"),
        rows=[
            (
                each.topic,
                each.partition,
                each.offset,
                each.lag,
                _age(each.oldest_age_ms),
                each.last_result,
                each.attempts,
                None if each.next_try_ms is None else time_text(each.next_try_ms),
                each.dead_lettered,
                _error_text(each),
            )
            for each in found.partitions
        ],
    )


@subscriptions.command()
@click.argument("name", shell_complete=complete_subscriptions)
@click.option("--read", "topics", multiple=True, help="Read this topic in place of those it has; you may repeat this.")
@target_options
@DEAD_LETTERS
@FILTER
@CONFIG
@BACK_TO_DEFAULT
@service_command
def alter(
    service: Service,
    name: str,
    topics: tuple[str, ...],
    dead_letter_topic: str | None,
    policy: dict[str, Any] | None,
    settings: tuple[str, ...],
    defaults: tuple[str, ...],
    **target: Any,
) -> None:
    """Change topics, target or settings of NAME. An endpoint keeps its secret while it keeps its URL.

    For example: penstock subscriptions alter mails --config batch_records=100
    """
    config = _config(settings, defaults, dead_letter_topic, policy)
    chosen = target_of(**target)
    if not (config or topics or chosen):
        raise click.UsageError(
            "nothing to change: give a target, --read, --config, --default, --dead-letters, --filter"
        )
    admin = Admin(transport=service.transport)
    admin.describe_subscription(name)  # so that a typo makes no new one
    _say(service, admin.put_subscription(name, topics or None, chosen, config))


@subscriptions.command()
@click.argument("name", shell_complete=complete_subscriptions)
@service_command
def pause(service: Service, name: str) -> None:
    """Begin no further delivery of NAME. A delivery that runs may go on for a minute.

    For example: penstock subscriptions pause mails
    """
    _say(service, Admin(transport=service.transport).pause_subscription(name))


@subscriptions.command()
@click.argument("name", shell_complete=complete_subscriptions)
@service_command
def resume(service: Service, name: str) -> None:
    """Go on with NAME where it was.

    For example: penstock subscriptions resume mails
    """
    _say(service, Admin(transport=service.transport).resume_subscription(name))


@subscriptions.command()
@click.argument("name", shell_complete=complete_subscriptions)
@YES
@service_command
def delete(service: Service, name: str, yes: bool) -> None:
    """Delete NAME and its places in the topics. The records stay.

    For example: penstock subscriptions delete mails
    """
    confirm(f"Delete subscription {name}?", yes=yes)
    Admin(transport=service.transport).delete_subscription(name)
    service.say({"deleted": name}, f"deleted {name}")


def _given(options: Mapping[str, Any]) -> set[str]:
    return {name for name, value in options.items() if value is not None}


def _config(
    settings: tuple[str, ...],
    defaults: tuple[str, ...],
    dead_letter_topic: str | None,
    policy: dict[str, Any] | None,
) -> dict[str, Any]:
    """The settings as the API has them: those of retries in an object of their own."""
    flat: dict[str, Any] = {**parse_settings(settings), **dict.fromkeys(defaults)}
    if dead_letter_topic is not None:
        flat["dead_letter_topic"] = dead_letter_topic
    if policy is not None:
        flat["filter"] = policy
    for name in flat:
        if name not in SUBSCRIPTION_DEFAULTS:
            raise click.BadParameter(
                f"{name!r:.100} is no setting: there are {', '.join(SUBSCRIPTION_DEFAULTS)}", param_hint="--config"
            )
    retry = {name: flat.pop(name) for name in _RETRY if name in flat}
    return {**flat, "retry": retry} if retry else flat


def _say(service: Service, subscription: Subscription) -> None:
    service.say(asdict(subscription), _text(subscription))


def _text(subscription: Subscription) -> str:
    config = subscription.config
    settings = {**{name: value for name, value in config.items() if name != "retry"}, **config["retry"]}
    return (
        f"{subscription.name} ({subscription.state}) of {', '.join(subscription.topics)} to "
        f"{_target_text(subscription)}; {told_settings(settings, SUBSCRIPTION_DEFAULTS)}"
    )


def _error_text(partition: SubscriptionPartition) -> str | None:
    """The last error, and the time until which the records wait for a proof that the target works."""
    if partition.patience_until_ms is None:
        return partition.last_error
    return f"{partition.last_error}; waits for patience until {time_text(partition.patience_until_ms)}"


def _target_text(subscription: Subscription) -> str:
    [(kind, place)] = subscription.target.items()
    return f"{kind} {place['url'] if isinstance(place, Mapping) else place}"


def _age(age_ms: int | None) -> str | None:
    return None if age_ms is None else age_text(age_ms)
