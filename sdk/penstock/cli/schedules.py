"""`penstock schedules`: create, list, describe, alter, enable, disable and delete schedules."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_schedules, complete_topics
from penstock.cli.options.settings import YES, confirm
from penstock.cli.service import (
    IF_NOT_EXISTS,
    Service,
    parse_pairs,
    service_command,
    time_text,
    told_to_exist,
)
from penstock.model.schedules import Schedule

_CRON = "minute hour day month weekday, such as '0 9 * * MON-FRI' or '*/15 * * * *'"
_ZONE = click.option("--time-zone", metavar="ZONE", help="The zone of the local times, such as Europe/Berlin.")
_VALUE = click.option("--value", metavar="TEXT", help="The value of the record.")
_KEY = click.option("--key", metavar="TEXT", help="The key of the record, which chooses its partition.")
_HEADERS = click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of the record; you may repeat this."
)


@click.group("schedules")
def schedules() -> None:
    """Create, look at, change and delete schedules: records that come at the times of a cron expression."""


@schedules.command()
@click.argument("name")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--cron", required=True, metavar="EXPRESSION", help=f"When the record comes: {_CRON}.")
@_ZONE
@_VALUE
@_KEY
@_HEADERS
@click.option("--disabled", is_flag=True, help="Do not run it until `penstock schedules enable`.")
@IF_NOT_EXISTS
@service_command
def create(
    service: Service,
    name: str,
    topic: str,
    cron: str,
    time_zone: str | None,
    value: str | None,
    key: str | None,
    headers: tuple[str, ...],
    disabled: bool,
    if_not_exists: bool,
) -> None:
    """Create the schedule NAME, which sends a record to TOPIC. If it exists, it gets what you give.

    For example: penstock schedules create report orders --cron '0 9 * * MON-FRI' --time-zone Europe/Berlin --value go
    """
    admin = Admin(transport=service.transport)
    if if_not_exists and told_to_exist(service, name, admin.describe_schedule):
        return
    record = _record(value or "", key, headers)
    _say(service, admin.put_schedule(name, cron, topic, record, time_zone=time_zone, enabled=not disabled))


@schedules.command("list")
@service_command
def list_schedules(service: Service) -> None:
    """List all schedules.

    For example: penstock schedules list
    """
    found = Admin(transport=service.transport).list_schedules()
    service.show(
        [asdict(each) for each in found],
        title="schedules",
        columns=("name", "topic", "cron", "zone", "next run", "last run", "runs", "error"),
        rows=[
            (
                each.name,
                each.topic,
                each.cron,
                each.time_zone,
                _time(each.next_ms) if each.enabled else "disabled",
                _time(each.last_run_ms),
                each.runs,
                each.last_error,
            )
            for each in found
        ],
    )


@schedules.command()
@click.argument("name", shell_complete=complete_schedules)
@service_command
def describe(service: Service, name: str) -> None:
    """Show when NAME runs next, when it ran last, and its last error.

    For example: penstock schedules describe report
    """
    found = Admin(transport=service.transport).describe_schedule(name)
    late_ms = None if found.last_run_ms is None or found.last_due_ms is None else found.last_run_ms - found.last_due_ms
    error = "" if found.last_error is None else f"{_time(found.last_error_ms)}: {found.last_error}"
    service.show(
        asdict(found),
        title=_text(found),
        columns=("what", "is"),
        rows=[
            ("next run", _time(found.next_ms) if found.enabled else "none: it is disabled"),
            ("last run", _time(found.last_run_ms)),
            ("which was due", _time(found.last_due_ms)),
            ("and came late by", None if late_ms is None else f"{late_ms} ms"),
            ("records so far", found.runs),
            ("last error", error or None),
            ("key", found.record.get("key", found.record.get("key_base64"))),
            ("value", found.record.get("value", found.record.get("value_base64"))),
            ("headers", " ".join(f"{name}={value}" for name, value in found.record["headers"]) or None),
            ("topic id", found.topic_id),
        ],
    )


@schedules.command()
@click.argument("name", shell_complete=complete_schedules)
@click.option("--cron", metavar="EXPRESSION", help=f"When the record comes: {_CRON}.")
@_ZONE
@click.option("--topic", shell_complete=complete_topics, help="The topic; a new one of the same name is bound by it.")
@_VALUE
@_KEY
@_HEADERS
@service_command
def alter(
    service: Service,
    name: str,
    cron: str | None,
    time_zone: str | None,
    topic: str | None,
    value: str | None,
    key: str | None,
    headers: tuple[str, ...],
) -> None:
    """Change the times, the topic or the record of NAME. Parts that you leave out stay; a record changes as a whole.

    For example: penstock schedules alter report --cron '0 8 * * *'
    """
    if value is None and (key is not None or headers):
        raise click.UsageError("give --value, too: a record changes as a whole")
    record = None if value is None else _record(value, key, headers)
    if record is None and cron is None and time_zone is None and topic is None:
        raise click.UsageError("nothing to change: give --cron, --time-zone, --topic or --value")
    admin = Admin(transport=service.transport)
    admin.describe_schedule(name)  # so that a typo makes no new one
    _say(service, admin.put_schedule(name, cron, topic, record, time_zone=time_zone))


@schedules.command()
@click.argument("name", shell_complete=complete_schedules)
@service_command
def enable(service: Service, name: str) -> None:
    """Let NAME run again, at its next time from now on.

    For example: penstock schedules enable report
    """
    _switch(service, name, enabled=True)


@schedules.command()
@click.argument("name", shell_complete=complete_schedules)
@service_command
def disable(service: Service, name: str) -> None:
    """Let NAME rest. The records of that time never come.

    For example: penstock schedules disable report
    """
    _switch(service, name, enabled=False)


@schedules.command()
@click.argument("name", shell_complete=complete_schedules)
@YES
@service_command
def delete(service: Service, name: str, yes: bool) -> None:
    """Delete NAME. The records that it has sent stay.

    For example: penstock schedules delete report
    """
    confirm(f"Delete schedule {name}?", yes=yes)
    Admin(transport=service.transport).delete_schedule(name)
    service.say({"deleted": name}, f"deleted {name}")


def _switch(service: Service, name: str, *, enabled: bool) -> None:
    admin = Admin(transport=service.transport)
    admin.describe_schedule(name)  # so that a typo is an unknown name
    _say(service, admin.put_schedule(name, enabled=enabled))


def _record(value: str, key: str | None, headers: tuple[str, ...]) -> Mapping[str, Any]:
    pairs = [[name, text] for each in headers for name, text in parse_pairs([each], "NAME=VALUE").items()]
    return {"value": value, **({} if key is None else {"key": key}), "headers": pairs}


def _say(service: Service, schedule: Schedule) -> None:
    service.say(asdict(schedule), _text(schedule))


def _text(schedule: Schedule) -> str:
    runs = f"next run {_time(schedule.next_ms)}" if schedule.enabled else "disabled"
    return f"{schedule.name}: {schedule.cron} ({schedule.time_zone}) to {schedule.topic}; {runs}"


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else time_text(time_ms)
