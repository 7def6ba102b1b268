"""Settings, filters and sizes, as people write and read them, and the question before a deletion."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.cli.options.times import DURATION_OR_FOREVER
from penstock.cli.service import parse_pairs
from penstock.model.fields import parse_size
from penstock_core.groups.group import GroupConfig
from penstock_core.log.topic import TopicConfig
from penstock_core.push.subscription import SubscriptionConfig
from penstock_core.share.share_group import ShareGroupConfig

Command = TypeVar("Command", bound=Callable[..., Any])
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def config_option(examples: str = "") -> Callable[[Command], Command]:
    """The option `--config`, whose help gives these examples."""
    such_as = f", such as {examples}" if examples else ""
    return click.option(
        "--config",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Set a setting{such_as}; you may repeat this.",
    )


def dead_letters_option(records: str) -> Callable[[Command], Command]:
    """The option `--dead-letters`, for these records."""
    return click.option(
        "--dead-letters",
        "dead_letter_topic",
        metavar="TOPIC",
        help=f"The topic for {records}.",
    )


CONFIG = config_option()
BACK_TO_DEFAULT = click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="NAME",
    help="Set a setting back to its default; you may repeat this.",
)
TOPIC_DEFAULTS = asdict(TopicConfig())
GROUP_DEFAULTS = asdict(GroupConfig())
SHARE_GROUP_DEFAULTS = asdict(ShareGroupConfig())
SUBSCRIPTION_DEFAULTS = {**asdict(SubscriptionConfig()), "age_ms_max": -1}  # -1 is no bound, as the API tells it


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` texts as settings: numbers are numbers, true and false are booleans.

    A time may be a duration, as in `retention_ms=7d`. Raises click.BadParameter. The service checks names and bounds.
    """
    return {name: _value(name, text) for name, text in parse_pairs(texts, "NAME=VALUE").items()}


def settings_text(config: Mapping[str, Any]) -> str:
    """All that have a value."""
    return " ".join(f"{name}={_text(value)}" for name, value in config.items() if value is not None)


def changed_settings(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Those that differ from their defaults."""
    return {name: value for name, value in config.items() if value != defaults.get(name)}


def changed_settings_text(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """Those that differ from their defaults; None if none does."""
    return settings_text(changed_settings(config, defaults)) or None


def told_settings(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Those that differ from their defaults, in a sentence."""
    return f"settings: {changed_settings_text(config, defaults) or 'all by default'}"


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | dict) else str(value)


def _value(name: str, text: str) -> int | str | bool:
    if text in ("true", "false"):
        return text == "true"
    if text.removeprefix("-").isdecimal() and text.isascii():
        return int(text)
    return DURATION_OR_FOREVER.convert(text, None, None) if name.endswith(("_ms", "_ms_min", "_ms_max")) else text


def filter_text(given: str) -> str:
    """The policy as text, not yet parsed. Raises click.BadParameter for a file that cannot be read."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{given!r:.100}: {error}", param_hint="--filter") from error


class Size(click.ParamType[int]):
    """A click type: a whole number of bytes, or with a unit such as KB or MiB, becomes bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes of the text. Fails with the format if it is no size."""
        try:
            return parse_size(str(value))
        except ValueError:
            self.fail(f"{value!r:.100} is not a size: write bytes, or a number as 10MB or 64KiB", param, ctx)


SIZE = Size()


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr, unless `yes` answers. Raises click.Abort if the answer is no."""
    if not yes:
        click.confirm(question, abort=True, err=True)
