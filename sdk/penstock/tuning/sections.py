"""All sections, in the order in which people read them."""

from importlib.metadata import entry_points

import click

from penstock.tuning.client_options import CONSUMER, PRODUCER, SHARE_CONSUMER, first_sentence
from penstock.tuning.environment import CONNECTION, STORAGE
from penstock.tuning.service_configs import GROUP, SHARE_GROUP, SUBSCRIPTION, TOPIC
from penstock.tuning.setting import Section, Setting
from penstock.tuning.stage import STAGE

_PLUGINS = "penstock.commands"  # as pyproject.toml names them: the SDK itself knows no gateway
_PLAIN = (str, int, bool)


def _gateway_options() -> tuple[Setting, ...]:
    found = [each.load() for each in entry_points(group=_PLUGINS, name="kafka")]
    return tuple(setting for command in found for setting in options_of(command))


def options_of(command: click.Command) -> tuple[Setting, ...]:
    """The command's options by their long names, in its order."""
    context = click.Context(command)
    return tuple(
        Setting(
            name=max(each.opts, key=len), default=_default(each, context), effect=first_sentence(each.help or each.name)
        )
        for each in command.params
        if isinstance(each, click.Option)
    )


def _default(option: click.Option, context: click.Context) -> object:
    """The default, None for an option that has none: click marks it by a value of its own."""
    default = option.get_default(context, call=False)
    return default if isinstance(default, _PLAIN) else None


GATEWAY = Section(
    name="gateway",
    title="Gateway for Kafka clients",
    how="Options of `penstock kafka`.",
    settings=_gateway_options(),
)
SECTIONS: tuple[Section, ...] = (
    CONNECTION,
    PRODUCER,
    CONSUMER,
    SHARE_CONSUMER,
    TOPIC,
    GROUP,
    SHARE_GROUP,
    SUBSCRIPTION,
    GATEWAY,
    STAGE,
    STORAGE,
)
BY_NAME = {section.name: section for section in SECTIONS}
