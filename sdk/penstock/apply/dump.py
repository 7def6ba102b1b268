"""A stage as the document of a file: `penstock apply` of it changes nothing.

It leaves out settings that have their defaults, and groups that have no others. No answer of the service has the secret
of an endpoint, so the document has none.
"""

from collections.abc import Mapping
from typing import Any

from penstock.apply.settings import defaults, unit_text
from penstock.apply.stage import Noun, Ownership, Settings, Stage
from penstock.apply.stage_file import RETRY
from penstock_core.acls.rule import Rule
from penstock_core.ids import is_reserved

_ALWAYS = ("partitions", "topics", "target", "cron", "topic")


def dump(stage: Stage, owned: Ownership | None) -> dict[str, Any]:
    """The document of what `owned` covers, and with None of all."""
    document: dict[str, Any] = {}
    if owned is not None:
        given = {"names": owned.names, "principals": owned.principals}
        document["owns"] = {name: [*map(str, patterns)] for name, patterns in given.items() if patterns}
    for noun, things in stage.things.items():
        kept = {name: each for name, each in sorted(things.items()) if owned is None or owned.has(noun, name)}
        if noun is Noun.QUOTA:
            continue
        named = {name: _entry(noun, each) for name, each in kept.items() if not is_reserved(name)}
        if noun is Noun.GROUP:
            named = {name: each for name, each in named.items() if each}
        document[noun.section] = named
    if stage.rules is not None:
        document["acls"] = _rules([rule for rule in stage.rules if owned is None or owned.has_rule(rule)])
    if Noun.QUOTA in stage.things:
        document[Noun.QUOTA.section] = [
            {subject: name, **limits}
            for full, limits in sorted(stage.things[Noun.QUOTA].items())
            if owned is None or owned.has(Noun.QUOTA, full)
            for subject, _, name in (full.partition(" "),)
        ]
    return document


def _entry(noun: Noun, settings: Settings) -> dict[str, Any]:
    usual = defaults(noun, settings)
    entry: dict[str, Any] = {name: settings[name] for name in _ALWAYS if name in settings}
    retry: dict[str, Any] = {}
    for name, value in settings.items():
        if name in usual and value != usual[name]:
            (retry if noun is Noun.SUBSCRIPTION and name in RETRY else entry)[name] = unit_text(name, value)
    if noun is Noun.SCHEDULE:
        entry["record"] = _record(settings["record"])
    return {**entry, "retry": retry} if retry else entry


def _record(record: Mapping[str, Any]) -> Any:
    """The record as a file has it: its value alone where there is no more."""
    given = {name: value for name, value in record.items() if value is not None and value != []}
    if given.keys() == {"value"}:
        return given["value"]
    return given if "value" in given or "value_base64" in given else {**given, "value": None}


def _rules(rules: list[Rule]) -> list[Mapping[str, Any]]:
    """One entry for the resources on which a principal has the same operations."""
    operations: dict[tuple[str, str, str], list[str]] = {}
    for rule in sorted(rules, key=lambda each: each.place):
        parts = rule.to_json()
        key = parts["principal"], parts["permission"], parts["resource"]
        operations.setdefault(key, []).append(parts["operation"])
    resources: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (principal, permission, resource), names in operations.items():
        resources.setdefault((principal, permission, tuple(names)), []).append(resource)
    return [
        {
            "principal": principal,
            **({} if permission == "allow" else {"permission": permission}),
            "operations": list(names),
            "resources": found,
        }
        for (principal, permission, names), found in sorted(resources.items())
    ]
