"""`penstock config`: each setting with its value, its default, its source and its effect."""

import json
import os
from collections.abc import Mapping

import click

from penstock.admin.admin import Admin
from penstock.cli.connection import ServiceDownError
from penstock.cli.service import Service, service_command
from penstock.cli.tables import show_table
from penstock.configuration import LOCAL_ENV
from penstock.errors import NotConfiguredError
from penstock.http.client import Client
from penstock.http.http_message import json_document, json_request
from penstock.http.transport import Transport
from penstock.local_files import LOCAL_ENV_NAMES, find_local_file, read_local_file
from penstock.tuning.page import default_text
from penstock.tuning.sections import BY_NAME, SECTIONS
from penstock.tuning.setting import Section, SettingValue, Source, configured, defaults_of, found, partly_known
from penstock.tuning.stage import read_stage
from penstock_core.errors import PenstockError


@click.group()
def config() -> None:
    """Look up settings: their values, defaults, sources and effects."""


@config.command()
@click.argument("sections", nargs=-1, type=click.Choice(list(BY_NAME)), metavar="[SECTION]...")
@click.option("--topic", metavar="TOPIC", help="Show the settings of this topic.")
@click.option("--group", metavar="GROUP", help="Show the settings of this consumer group.")
@click.option("--share-group", metavar="GROUP", help="Show the settings of this share group.")
@click.option("--subscription", metavar="NAME", help="Show the settings of this subscription.")
@click.option("--stack", metavar="STACK", help="Show the settings of this deployed stack, by its template.")
@service_command
def show(service: Service, sections: tuple[str, ...], **named: str | None) -> None:
    """Show each setting: its value, its default, where the value comes from, and what it does.

    Without a SECTION it shows all of them, or those that the options are about. It shows the defaults of client
    options: only your programs know their arguments. The sections are:

    connection, producer, consumer, share-consumer, topic, group, share-group, subscription, gateway, stage, storage.

    For example: penstock config show --topic orders
    """
    asked = {option.replace("_", "-"): name for option, name in named.items() if name is not None}
    wanted = {*sections, *("stage" if name == "stack" else name for name in asked)}
    chosen = [each for each in SECTIONS if not wanted or each.name in wanted]
    values = {section.name: _values(service, section, asked) for section in chosen}
    if service.as_json:
        click.echo(json.dumps({name: [each.to_json() for each in known] for name, known in values.items()}))
        return
    for section in chosen:
        show_table(
            f"{section.name}: {section.how}",
            ("setting", "value", "default", "source", "effect"),
            [_row(each) for each in values[section.name]],
        )


def _values(service: Service, section: Section, asked: Mapping[str, str]) -> list[SettingValue]:
    name = asked.get(section.name)
    if section.name == "stage":
        return _stage(service, section, asked.get("stack"))
    if section.name in ("connection", "storage"):
        return _environment(section)
    if name is None:
        return defaults_of(section)
    return configured(
        section, _config(Admin(transport=service.transport), section.name, name), Source(section.name.replace("-", " "))
    )


def _config(admin: Admin, kind: str, name: str) -> Mapping[str, object]:
    if kind == "topic":
        return admin.describe_topic(name).topic.config
    if kind == "group":
        return admin.describe_group(name).group.config
    if kind == "share-group":
        return admin.describe_share_group(name).group.config
    return admin.describe_subscription(name).subscription.config


def _environment(section: Section) -> list[SettingValue]:
    params = click.get_current_context().params
    arguments = {"PENSTOCK_URL": params["url"] or "", "AWS_REGION": params["region"] or ""}
    path = find_local_file(LOCAL_ENV.name)
    try:
        file = {} if path is None else read_local_file(path, LOCAL_ENV_NAMES)
    except NotConfiguredError as error:
        click.echo(f"{path} is not used: {error}", err=True)
        file = {}
    return found(section, {name: text for name, text in arguments.items() if text}, os.environ, file)


def _stage(service: Service, section: Section, stack: str | None) -> list[SettingValue]:
    if stack is not None:
        told = read_stage(stack, click.get_current_context().params["region"])
        return configured(section, told, Source.STAGE)
    try:
        return partly_known(section, {"storage_profile": _profile(service.transport)}, Source.STAGE)
    except (PenstockError, ServiceDownError) as error:
        click.echo(f"the stage is not known: {' '.join(str(error).split())}", err=True)
        return partly_known(section, {}, Source.STAGE)


def _profile(transport: Transport) -> str:
    """The storage profile of the service. One call, as `penstock doctor` makes it."""
    request = json_request("GET", "/v1/zones")
    return str(json_document(request, Client(transport).try_once(request))["profile"])


def _row(known: SettingValue) -> tuple[str, str, str, str, str]:
    value = "?" if known.source is Source.UNKNOWN else default_text(known.value)
    return known.setting.name, value, default_text(known.setting.default), known.source.value, known.setting.effect
