"""The changes that bring a stage to what a file wants. Pure: (wanted, present) gives a plan.

A setting that the file leaves out stays as it is, and has its default in a new thing. None (`null`) is the default. So
no file loses records by what it leaves out. A quota is one value: it has the limits of the file, and no others.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.apply.settings import losses, unit_text, whole
from penstock.apply.stage import Noun, Ownership, Settings, Stage
from penstock.apply.stage_file import StageFile
from penstock.model.schedules import content_of
from penstock_core.acls.rule import Kind, Rule
from penstock_core.errors import PenstockError, shown
from penstock_core.ids import is_reserved
from penstock_core.share.share_group import TOPICS_LISTED

RULE = "rule"
_USERS = (Noun.SHARE_GROUP, Noun.SUBSCRIPTION, Noun.SCHEDULE)  # of topics
_PRUNED = (
    Noun.SCHEDULE,
    Noun.SUBSCRIPTION,
    Noun.SHARE_GROUP,
    Noun.QUOTA,
    Noun.TOPIC,
)  # groups are made by their members
_MISSING = object()
_Thing = tuple[Noun, str]


class ChangeAction(StrEnum):
    """What a change does, by the sign that shows it."""

    CREATE = "+"
    CHANGE = "~"
    DELETE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """One change. `before` and `after` have the settings that change; `settings` has all that the thing will have.

    A rule has its `rule`, and no settings. `note` is what a reader must know before the change. By one that
    `is_destructive` something goes: a thing, records, their delivery, the place of dead letters, or partitions.
    """

    action: ChangeAction
    what: str
    name: str
    before: Settings
    after: Settings
    settings: Settings
    rule: Rule | None = None
    note: str = ""
    is_destructive: bool = False

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
            "is_destructive": self.is_destructive,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """The changes, the number of things that are as the file says, and the mistakes that the stage shows.

    With mistakes, nothing is to be changed. `secrets` counts the endpoints whose secrets nothing compares or sends.
    """

    changes: tuple[StageChange, ...]
    unchanged: int
    mistakes: tuple[str, ...]
    secrets: int = 0

    @property
    def is_destructive(self) -> bool:
        """True if something goes, or partitions drain: a person should say yes to it."""
        return any(each.is_destructive for each in self.changes)

    @property
    def deleted_topics(self) -> list[str]:
        """The topics that go, by name."""
        return [each.name for each in self.changes if (each.what, each.action) == (Noun.TOPIC, ChangeAction.DELETE)]

    def rules_after(self, present: Stage) -> frozenset[Rule]:
        """The rules of the stage once the plan is carried out."""
        gone = {each.rule for each in self.changes if each.action is ChangeAction.DELETE}
        made = {each.rule for each in self.changes if each.rule is not None and each.action is ChangeAction.CREATE}
        return frozenset((present.rules or frozenset()) - gone | made)


def plan(file: StageFile, present: Stage, *, prune: bool, send_secrets: bool = False) -> StagePlan:
    """The plan. Of `present`, it looks at the sections that the file has. With `prune`, `file.owned` must be there.

    With `send_secrets`, each endpoint that is there gets the secret that the file names.
    """
    wanted = file.stage
    settings, mistakes = _settings(file, present)
    mistakes += _unknown_topics(file, present)
    changes = list(_thing_changes(wanted, present, settings, send_secrets=send_secrets))
    count = sum(map(len, wanted.things.values()))
    made = {each.name for each in changes if each.what == Noun.TOPIC and each.action is ChangeAction.CREATE}
    changes += _bound_again(settings, present, changes, made)
    secrets = _has_secret_count(wanted, changes)
    added = _rule_changes(ChangeAction.CREATE, (wanted.rules or frozenset()) - (present.rules or frozenset()))
    unchanged = count - len(changes) + len(wanted.rules or ()) - len(added)
    changes += added
    if prune and file.owned is not None:
        mistakes += [f"{file.path}:{line}: {section}: {_emptied(section)}" for section, line in file.empty.items()]
        pruned = list(_pruned(wanted, present, file.owned))
        mistakes += _still_used(settings, present, pruned)
        changes += pruned
    return StagePlan(changes=tuple(changes), unchanged=unchanged, mistakes=tuple(mistakes), secrets=secrets)


def _settings(file: StageFile, present: Stage) -> tuple[dict[_Thing, Settings], list[str]]:
    """All settings of each thing of the file, and the mistakes of the others."""
    settings: dict[_Thing, Settings] = {}
    mistakes: list[str] = []
    for noun, things in file.stage.things.items():
        for name, given in things.items():
            try:
                settings[noun, name] = whole(noun, given, present.things.get(noun, {}).get(name))
            except PenstockError as error:
                mistakes.append(f"{file.place(noun, name)}: {noun.section}.{name}: {error.message}")
    return settings, mistakes


def _thing_changes(
    wanted: Stage, present: Stage, settings: Mapping[_Thing, Settings], *, send_secrets: bool
) -> Iterator[StageChange]:
    for (noun, name), every in settings.items():
        given, known = wanted.things[noun][name], present.things.get(noun, {}).get(name)
        if known is None:
            yield _created(noun, name, given, every)
        elif change := _changed(noun, name, known, every, sends_secret=send_secrets and _has_secret(given)):
            yield change


def _created(noun: Noun, name: str, given: Settings, wanted: Settings) -> StageChange:
    """The change that makes a thing. It shows what the file gives, and for None the default that it means."""
    after = {each: wanted[each] for each in given}
    if noun is Noun.TOPIC:
        after = {"partitions": 1, **after}
    return StageChange(action=ChangeAction.CREATE, what=noun, name=name, before={}, after=after, settings=wanted)


def _changed(noun: Noun, name: str, known: Settings, wanted: Settings, *, sends_secret: bool) -> StageChange | None:
    """The change of one thing, None if it is as the file says."""
    names = {**wanted, **known} if noun is Noun.QUOTA else wanted
    differing = [each for each in names if not _is_same(each, wanted.get(each, _MISSING), known.get(each, _MISSING))]
    if wanted.get("topic_order") == TOPICS_LISTED and wanted["topics"] != known["topics"]:
        differing = [*dict.fromkeys((*differing, "topics"))]
    notes = [*losses(differing, known, wanted)]
    is_destructive = bool(notes)
    if "partitions" in differing:
        notes.append("keys map to other partitions from then on")
    if sends_secret:
        differing = [*{*differing, "target"}]
        notes.append("its secret is sent")
    if not differing:
        return None
    return StageChange(
        action=ChangeAction.CHANGE,
        what=noun,
        name=name,
        before={each: known[each] for each in differing if each in known},
        after={each: wanted[each] for each in differing if each in wanted},
        settings=wanted,
        note="; ".join(notes),
        is_destructive=is_destructive,
    )


def _is_same(name: str, wanted: object, known: object) -> bool:
    if name == "topics" and isinstance(wanted, list) and isinstance(known, list):
        return {*wanted} == {*known}
    if name == "target":  # no answer has the secret of an endpoint
        return _without_secret({name: wanted}) == _without_secret({name: known})
    if name == "record" and isinstance(wanted, Mapping) and isinstance(known, Mapping):
        return content_of(wanted) == content_of(known)
    return wanted == known


def _has_secret(settings: Settings) -> bool:
    endpoint = settings.get("target", {}).get("https")
    return isinstance(endpoint, Mapping) and "secret" in endpoint


def _has_secret_count(wanted: Stage, changes: Sequence[StageChange]) -> int:
    """The number of endpoints with a secret that no change sends."""
    sent = {each.name for each in changes if each.what == Noun.SUBSCRIPTION and "target" in each.after}
    things = wanted.things.get(Noun.SUBSCRIPTION, {})
    return sum(_has_secret(settings) for name, settings in things.items() if name not in sent)


def _emptied(section: str) -> str:
    empty = "[]" if section in ("acls", Noun.QUOTA.section) else "{}"
    return f"it has no entry, and --prune would delete all {section} that the file owns: write {empty} if you mean that"


def _topics_of(settings: Settings) -> Iterator[tuple[str, str]]:
    """The topics that a share group, a subscription or a schedule uses, and what for."""
    yield from ((topic, "topics") for topic in settings.get("topics", ()))
    if topic := settings.get("topic"):
        yield topic, "topic"
    target = settings.get("target", {}).get("topic")
    letters = settings.get("dead_letter_topic")
    yield from ((topic, what) for topic, what in ((target, "target"), (letters, "dead_letter_topic")) if topic)


def _unknown_topics(file: StageFile, present: Stage) -> Iterator[str]:
    topics = {*file.stage.things.get(Noun.TOPIC, ()), *present.things.get(Noun.TOPIC, ())}
    for noun in _USERS:
        for name, settings in file.stage.things.get(noun, {}).items():
            for topic, what in _topics_of(settings):
                if topic not in topics:
                    yield (
                        f"{file.place(noun, name)}: {noun.section}.{name}.{what}: the topic {shown(topic)} is neither "
                        "in the file nor in the stage"
                    )


def _bound_again(
    wanted: Mapping[_Thing, Settings], present: Stage, changes: Sequence[StageChange], made: set[str]
) -> Iterator[StageChange]:
    """Changes of things that do not change otherwise, and use a topic that is made anew: they get its id."""
    changed = {(each.what, each.name) for each in changes}
    for (noun, name), settings in wanted.items():
        written = {settings["topic"]} if noun is Noun.SCHEDULE else set()
        topics = sorted(made & {*settings.get("topics", ()), *written})
        if topics and name in present.things.get(noun, {}) and (noun, name) not in changed:
            yield StageChange(
                action=ChangeAction.CHANGE,
                what=noun,
                name=name,
                before={},
                after={},
                settings=settings,
                note=f"it {'writes to' if written else 'reads'} the new {', '.join(topics)}",
            )


def _rule_changes(action: ChangeAction, rules: Collection[Rule]) -> list[StageChange]:
    """A change for each rule. Those on the service are the last: one may be the caller's own right to go on."""
    return [
        StageChange(
            action=action,
            what=RULE,
            name=rule.place,
            before={},
            after={},
            settings={},
            rule=rule,
            is_destructive=action is ChangeAction.DELETE,
        )
        for rule in sorted(rules, key=lambda each: (each.kind in (None, Kind.SERVICE), each.place))
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
                action=ChangeAction.DELETE,
                what=noun,
                name=name,
                before=known,
                after={},
                settings=known,
                note=note,
                is_destructive=True,
            )
    if wanted.rules is not None:
        left = (present.rules or frozenset()) - wanted.rules
        yield from _rule_changes(ChangeAction.DELETE, {rule for rule in left if owned.has_rule(rule)})


def _still_used(wanted: Mapping[_Thing, Settings], present: Stage, pruned: Collection[StageChange]) -> Iterator[str]:
    """Mistakes for topics that would go, while share groups, subscriptions and schedules that stay use them."""
    gone = {(each.what, each.name) for each in pruned}
    for noun in _USERS:
        staying = {**present.things.get(noun, {}), **{name: each for (of, name), each in wanted.items() if of is noun}}
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
    if name == "record":
        key, record_value, headers = content_of(value)
        parts = {"key": key, "value": record_value, **({"headers": headers} if headers else {})}
        return " ".join(f"{part}:{shown(each)}" for part, each in parts.items() if each is not None) or "none"
    if name == "target":
        [(kind, where)] = _without_secret({name: value})[name].items()
        return f"{kind}:{where['url'] if isinstance(where, Mapping) else where}"
    return str(unit_text(name, value)) if not isinstance(value, bool) else str(value).lower()
