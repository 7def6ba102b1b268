"""The values that hold, each with its source. Pure: the caller reads environment, file and service."""

from collections.abc import Mapping
from typing import Any

from penstock.tuning.setting import Section, SettingValue, Source

HIDDEN = "(set)"  # in place of a secret


def defaults_of(section: Section) -> list[SettingValue]:
    """Each setting with its default: nobody knows the arguments of your programs."""
    return [SettingValue(setting=each, value=each.default, source=Source.DEFAULT) for each in section.settings]


def configured(section: Section, config: Mapping[str, Any], source: Source) -> list[SettingValue]:
    """The settings of one topic, group, share group, subscription or stage: `config` has those that it tells."""
    return [
        SettingValue(
            setting=each,
            value=config.get(each.name, each.default),
            source=source if config.get(each.name, each.default) != each.default else Source.DEFAULT,
        )
        for each in section.settings
    ]


def partly_known(section: Section, config: Mapping[str, Any], source: Source) -> list[SettingValue]:
    """As `configured`, but nobody knows the settings that `config` does not tell."""
    return [
        SettingValue(setting=each, value=config[each.name], source=source)
        if each.name in config
        else SettingValue(setting=each, value=None, source=Source.UNKNOWN)
        for each in section.settings
    ]


def found(
    section: Section, arguments: Mapping[str, str], environ: Mapping[str, str], file: Mapping[str, str]
) -> list[SettingValue]:
    """Environment variables, by the rules of penstock.configuration: argument, environment, file, default.

    If the file gives the URL, it gives region and keys too, and what was exported for AWS does not count.
    """
    is_of_file = "PENSTOCK_URL" not in arguments and not environ.get("PENSTOCK_URL") and "PENSTOCK_URL" in file
    values = []
    for setting in section.settings:
        name = setting.name
        exported = "" if is_of_file and name in file else environ.get(name, "")
        local = file.get(name, "") if is_of_file else ""
        value, source = next(
            (
                (text, source)
                for text, source in (
                    (arguments.get(name, ""), Source.ARGUMENT),
                    (exported, Source.ENVIRONMENT),
                    (local, Source.FILE),
                )
                if text
            ),
            (setting.default, Source.DEFAULT),
        )
        shown = HIDDEN if setting.is_secret and value else value
        values.append(SettingValue(setting=setting, value=shown, source=source))
    return values
