"""The changes that bring a stage to what a file wants. Pure: (wanted, present) gives a plan.

A setting that the file leaves out has its default. Four things stay as they are where the file leaves them out: the
number of partitions, and what is fixed when a thing is made (`ordering`, `mode`, `start`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from penstock.apply.stage import Noun, Ownership, Settings, Stage
from penstock.apply.stage_file import FOREVER, StageFile
from penstock.model.times import duration_text
from penstock_core.acls.rule import Rule
from penstock_core.errors import shown
from penstock_core.groups.group import GroupConfig, alter_group_config
from penstock_core.ids import is_reserved
from penstock_core.limits import UNLIMITED
from penstock_core.log.topic import TopicConfig, alter_config
from penstock_core.push.subscription import SubscriptionConfig, new_subscription_config
from penstock_core.share.share_group import ShareGroupConfig, new_share_group_config

RULE = "rule"
FIXED = {Noun.SHARE_GROUP: ("ordering", "start"), Noun.SUBSCRIPTION: ("mode", "start")}
_PRUNED = (Noun.SUBSCRIPTION, Noun.SHARE_GROUP, Noun.QUOTA, Noun.TOPIC)  # groups are made by their members
_MISSING = object()


class ChangeAction(StrEnum):
    """What a change does, by the sign that shows it."""

    CREATE = "+"
    CHANGE = "~"
    DELETE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """One change. `before` and `after` have the settings that change; `settings` has all that the thing will have.

    A rule has its `rule`, and no settings. `note` is what a reader must know before the change.
    """

    action: ChangeAction
    what: str
    name: str
    before: Settings
    after: Settings
    settings: Settings
    rule: Rule | None = None
    note: str = ""

    def text(self) -> str:
        """The line of the diff."""
        if self.action is ChangeAction.CHANGE:
            names = sorted({*self.before, *self.after})
            changed = "  ".join(f"{each}: {_shown(each, self.before)} -> {_shown(each, self.after)}" for each in names)
        else:
            changed = " ".join(f"{each}={_shown(each, self.after)}" for each in self.after)
        note = f"  ({self.note})" if self.note else ""
        return f"{self.action} {self.what} {self.name}{f': {changed}' if changed else ''}{note}"

    def to_json(self) -> dict[str, Any]:
        """The change for programs."""
        return {
            "action": self.action.name.lower(),
            "what": self.what,
            "name": self.name,
            "before": _without_secret(self.before),
            "after": _without_secret(self.after),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """The changes, the number of things that are as the file says, and the mistakes that the stage shows.

    With mistakes, nothing is to be changed.
    """

    changes: tuple[StageChange, ...]
    unchanged: int
    mistakes: tuple[str, ...]

    @property
    def is_destructive(self) -> bool:
        """True if something goes, or partitions drain: a person should say yes to it."""
        return any(each.action is ChangeAction.DELETE or _drains(each) for each in self.changes)


def plan(file: StageFile, present: Stage, *, prune: bool) -> StagePlan:
    """The plan. Of `present`, it looks at the sections that the file has. With `prune`, `file.owned` must be there."""
    wanted = file.stage
    changes: list[StageChange] = []
    mistakes = list(_unknown_topics(file, present))
    for noun, things in wanted.things.items():
        there = present.things.get(noun, {})
        for name, given in things.items():
            known = there.get(name)
            mistakes += _fixed(file, noun, name, given, known)
            change = _changed(noun, name, given, known)
            changes += [] if change is None else [change]
    count = sum(map(len, wanted.things.values()))
    made = {each.name for each in changes if each.what == Noun.TOPIC and each.action is ChangeAction.CREATE}
    changes += _bound_again(wanted, present, changes, made)
    added = _rule_changes(ChangeAction.CREATE, (wanted.rules or frozenset()) - (present.rules or frozenset()))
    unchanged = count - len(changes) + len(wanted.rules or ()) - len(added)
    changes += added
    if prune and file.owned is not None:
        pruned = list(_pruned(wanted, present, file.owned))
        mistakes += _still_used(wanted, present, pruned)
        changes += pruned
    return StagePlan(changes=tuple(changes), unchanged=unchanged, mistakes=tuple(mistakes))


def whole(noun: Noun, given: Settings, known: Settings | None) -> dict[str, Any]:
    """All settings that the thing is to have. What is fixed is as it is in `known`, unless it is given."""
    config = {name: value for name, value in given.items() if name not in ("topics", "target", "partitions")}
    others = {name: value for name, value in given.items() if name not in config}
    kept = {name: known[name] for name in FIXED.get(noun, ()) if known is not None and name in known}
    match noun:
        case Noun.TOPIC:
            return {**asdict(alter_config(TopicConfig(), config)), **others}
        case Noun.GROUP:
            return {**asdict(alter_group_config(GroupConfig(), config)), **others}
        case Noun.SHARE_GROUP:
            return {**others, **asdict(new_share_group_config({**kept, **config}))}
        case Noun.SUBSCRIPTION:
            return {**others, **asdict(new_subscription_config({**kept, **config}))}
        case Noun.QUOTA:
            return dict(given)


def defaults(noun: Noun, settings: Settings) -> Settings:
    """The settings of a thing that sets none but what decides about the others."""
    match noun:
        case Noun.TOPIC:
            return asdict(TopicConfig())
        case Noun.GROUP:
            return asdict(GroupConfig())
        case Noun.SHARE_GROUP:
            deciding = {name: settings[name] for name in ("ordering", "dead_letter_topic") if name in settings}
            return {**asdict(new_share_group_config(deciding)), **asdict_of(ShareGroupConfig(), deciding)}
        case Noun.SUBSCRIPTION:
            deciding = {name: settings[name] for name in ("dead_letter_topic",) if name in settings}
            return {**asdict(new_subscription_config(deciding)), **asdict_of(SubscriptionConfig(), deciding)}
        case Noun.QUOTA:
            return {}


def asdict_of(config: ShareGroupConfig | SubscriptionConfig, names: Collection[str]) -> dict[str, Any]:
    """These settings of the config."""
    return {name: value for name, value in asdict(config).items() if name in names}


def _changed(noun: Noun, name: str, given: Settings, known: Settings | None) -> StageChange | None:
    """The change of one thing, None if it is as the file says."""
    wanted = whole(noun, given, known)
    if known is None:
        shown_ones = given if noun is not Noun.TOPIC else {"partitions": 1, **given}
        return StageChange(
            action=ChangeAction.CREATE, what=noun, name=name, before={}, after=shown_ones, settings=wanted
        )
    # An older service does not tell each setting, and a newer one tells more than this release knows.
    names = [each for each in wanted if each in known or each in given]
    if noun is Noun.QUOTA:
        names = [*{**wanted, **known}]
    differing = [each for each in names if not _is_same(each, wanted.get(each, _MISSING), known.get(each, _MISSING))]
    if not differing:
        return None
    return StageChange(
        action=ChangeAction.CHANGE,
        what=noun,
        name=name,
        before={each: known[each] for each in differing if each in known},
        after={each: wanted[each] for each in differing if each in wanted},
        settings=wanted,
        note=_note(differing, known, wanted),
    )


def _is_same(name: str, wanted: object, known: object) -> bool:
    if name == "topics" and isinstance(wanted, list) and isinstance(known, list):
        return sorted(wanted) == sorted(known)
    if name == "target":  # no answer has the secret of an endpoint
        return _without_secret({name: wanted}) == _without_secret({name: known})
    return wanted == known


def _note(differing: Collection[str], known: Settings, wanted: Settings) -> str:
    if "partitions" not in differing:
        return ""
    if wanted["partitions"] < known["partitions"]:
        return "the other partitions drain; keys map to other partitions from then on"
    return "keys map to other partitions from then on"


def _drains(change: StageChange) -> bool:
    return int(change.after.get("partitions", 0)) < int(change.before.get("partitions", 0))


def _fixed(file: StageFile, noun: Noun, name: str, given: Settings, known: Settings | None) -> Iterator[str]:
    for each in FIXED.get(noun, ()):
        if known is not None and each in given and given[each] != known.get(each):
            yield (
                f"{file.place(noun, name)}: {noun.section}.{name}.{each}: {shown(given[each])}: a {noun} keeps its "
                f"{each} ({known.get(each)}) for ever; delete it, or give another name"
            )


def _topics_of(settings: Settings) -> Iterator[tuple[str, str]]:
    """The topics that a share group or a subscription uses, and what for."""
    yield from ((topic, "topics") for topic in settings.get("topics", ()))
    target = settings.get("target", {}).get("topic")
    letters = settings.get("dead_letter_topic")
    yield from ((topic, what) for topic, what in ((target, "target"), (letters, "dead_letter_topic")) if topic)


def _unknown_topics(file: StageFile, present: Stage) -> Iterator[str]:
    topics = {*file.stage.things.get(Noun.TOPIC, ()), *present.things.get(Noun.TOPIC, ())}
    for noun in (Noun.SHARE_GROUP, Noun.SUBSCRIPTION):
        for name, settings in file.stage.things.get(noun, {}).items():
            for topic, what in _topics_of(settings):
                if topic not in topics:
                    yield (
                        f"{file.place(noun, name)}: {noun.section}.{name}.{what}: the topic {shown(topic)} is neither "
                        "in the file nor in the stage"
                    )


def _bound_again(
    wanted: Stage, present: Stage, changes: Sequence[StageChange], made: set[str]
) -> Iterator[StageChange]:
    """Changes of things that do not change otherwise, and read a topic that is made anew: they get its id."""
    changed = {(each.what, each.name) for each in changes}
    for noun in (Noun.SHARE_GROUP, Noun.SUBSCRIPTION):
        for name, given in wanted.things.get(noun, {}).items():
            known = present.things.get(noun, {}).get(name)
            topics = sorted(made & {*given["topics"]})
            if known is not None and topics and (noun, name) not in changed:
                yield StageChange(
                    action=ChangeAction.CHANGE,
                    what=noun,
                    name=name,
                    before={},
                    after={},
                    settings=whole(noun, given, known),
                    note=f"it reads the new {', '.join(topics)}",
                )


def _rule_changes(action: ChangeAction, rules: Collection[Rule]) -> list[StageChange]:
    return [
        StageChange(action=action, what=RULE, name=rule.place, before={}, after={}, settings={}, rule=rule)
        for rule in sorted(rules, key=lambda each: each.place)
    ]


def _pruned(wanted: Stage, present: Stage, owned: Ownership) -> Iterator[StageChange]:
    for noun in _PRUNED:
        if noun not in wanted.things:
            continue
        for name, known in present.things.get(noun, {}).items():
            if name in wanted.things[noun] or not owned.has(noun, name) or (noun is Noun.TOPIC and is_reserved(name)):
                continue
            note = "and all its records" if noun is Noun.TOPIC else ""
            yield StageChange(
                action=ChangeAction.DELETE, what=noun, name=name, before=known, after={}, settings=known, note=note
            )
    if wanted.rules is not None:
        left = (present.rules or frozenset()) - wanted.rules
        yield from _rule_changes(ChangeAction.DELETE, {rule for rule in left if owned.has_rule(rule)})


def _still_used(wanted: Stage, present: Stage, pruned: Collection[StageChange]) -> Iterator[str]:
    """Mistakes for topics that would go, while share groups and subscriptions that stay use them."""
    gone = {(each.what, each.name) for each in pruned}
    for noun in (Noun.SHARE_GROUP, Noun.SUBSCRIPTION):
        staying = {**present.things.get(noun, {}), **wanted.things.get(noun, {})}
        for name, settings in staying.items():
            if (noun, name) in gone:
                continue
            for topic, what in _topics_of(settings):
                if (Noun.TOPIC, topic) in gone:
                    yield f"topic {topic} would be deleted, but {noun} {name} uses it ({what}): change that first"


def _without_secret(settings: Mapping[str, Any]) -> dict[str, Any]:
    target = settings.get("target")
    if not isinstance(target, Mapping) or not isinstance(target.get("https"), Mapping):
        return dict(settings)
    endpoint = {name: value for name, value in target["https"].items() if name != "secret"}
    return {**settings, "target": {"https": endpoint}}


def _shown(name: str, settings: Settings) -> str:
    """The value as the file could have it."""
    value = settings.get(name)
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if name == "target":
        [(kind, where)] = _without_secret({name: value})[name].items()
        return f"{kind}:{where['url'] if isinstance(where, Mapping) else where}"
    return str(unit_text(name, value)) if not isinstance(value, bool) else str(value).lower()


def unit_text(name: str, value: Any) -> Any:
    """A time of a setting with its unit, as the file may have it; another value as it is."""
    if type(value) is not int or not name.endswith(("_ms", "_ms_min", "_ms_max")):
        return value
    if value == UNLIMITED:
        return FOREVER
    return duration_text(value) if value > 0 else value
