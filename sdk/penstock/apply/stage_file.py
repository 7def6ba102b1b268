"""The file of a stage: what each section may hold, and how a file becomes a `Stage`.

```yaml
owns: {names: [shop.*], principals: ["arn:aws:iam::111122223333:role/shop-*"]}
topics:        {shop.orders: {partitions: 6, retention_ms: 14d}}
groups:        {shop.billing: {session_timeout_ms: 30s}}
share_groups:  {shop.pack: {topics: [shop.orders], lock_ms: 1m}}
subscriptions: {shop.mail: {topics: [shop.orders], target: {lambda: "arn:…"}}}
schedules:     {shop.report: {cron: "0 9 * * MON-FRI", time_zone: Europe/Berlin, topic: shop.orders, record: go}}
acls:   [{principal: "arn:…:role/shop-api", operations: [write], resources: ["topic:shop.*"]}]
quotas: [{principal: "arn:…:role/shop-api", produce_bytes_per_s: 10MB}]
```

The service's own checks refuse names and values before anything is sent. All mistakes of a file are told at once.
Whether settings go together is the plan's question, because those that a file leaves out are the stage's.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from penstock.api.schedule_calls import record_json
from penstock.apply.document import DocumentError, Node, read_document
from penstock.apply.settings import whole_number, with_unit
from penstock.apply.stage import SECTIONS, Noun, Ownership, Settings, Stage
from penstock.model.schedules import content_of
from penstock_core.acls.rule import ALL, ALLOW, NamePattern, Rule, parse_principal_pattern, parse_rule
from penstock_core.acls.tokens import full_principal
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.groups.group import GroupConfig, alter_group_config
from penstock_core.ids import parse_group_name, parse_own_topic_name, parse_schedule_name
from penstock_core.limits import ACL_RULES_MAX, HEARTBEAT_INTERVAL_MS_MIN, SESSION_TIMEOUT_MS_MAX, UNLIMITED
from penstock_core.log.topic import TopicConfig, alter_config, check_partitions
from penstock_core.push.subscription import check_declared_subscription
from penstock_core.push.targets.target import parse_target
from penstock_core.quotas.quota import Subject, parse_quota
from penstock_core.share.share_group import check_declared_group

RETRY = ("attempts_max", "backoff_ms_min", "backoff_ms_max", "patience_ms", "age_ms_max")
SCHEDULE_FIELDS = ("cron", "topic", "record", "time_zone", "enabled")
RULE_FIELDS = ("principal", "operations", "resources", "permission")
MISTAKES_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFile:
    """A file that was read: what it wants, what it owns (None: it does not say), and the line of each part.

    `empty` has the sections without any value, and their lines: all their entries may be comments by mistake.
    """

    path: str
    stage: Stage
    owned: Ownership | None
    lines: Mapping[tuple[str, str], int]
    empty: Mapping[str, int] = field(default_factory=dict)

    def place(self, what: str, name: str) -> str:
        """The file and line of a thing or a rule, as a message begins."""
        return f"{self.path}:{self.lines.get((what, name), 1)}"


def patterns_of_names(texts: Sequence[str]) -> tuple[NamePattern, ...]:
    """Patterns of names, as resources of rules have them. Raises INVALID_REQUEST."""
    return tuple(parse_rule("*", "all", text if text == "*" else f"topic:{text}").resource for text in texts)


def patterns_of_principals(texts: Sequence[str]) -> tuple[NamePattern, ...]:
    """Patterns of principals, as rules have them. Raises INVALID_REQUEST."""
    return tuple(parse_principal_pattern(full_principal(text, None)) for text in texts)


_PATTERNS = {"names": patterns_of_names, "principals": patterns_of_principals}


def mistakes_in(messages: Sequence[str]) -> PenstockError:
    """The error for these messages. Its fact `mistakes` has each of them."""
    left = len(messages) - MISTAKES_SHOWN
    told = [*messages[:MISTAKES_SHOWN], *([f"and {left} more"] if left > 0 else [])]
    return PenstockError(ErrorCode.INVALID_CONFIG, "; ".join(told), mistakes=told)


def read_stage_file(path: Path) -> StageFile:
    """The file as a stage. Raises INVALID_CONFIG with all its mistakes, each with file, line and field. Reads once."""
    reader = _Reader(str(path))
    try:
        root = read_document(path)
    except DocumentError as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise mistakes_in([f"{place}: {error.message}"]) from error
    return reader.stage(root)


class _Reader:
    """Collects the mistakes of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mistakes: list[str] = []
        self._lines: dict[tuple[str, str], int] = {}

    def stage(self, root: Node) -> StageFile:
        sections = self._fields(root, "the file", SECTIONS)
        owned = self._ownership(sections["owns"]) if "owns" in sections else None
        things: dict[Noun, Mapping[str, Settings]] = {}
        for noun, read in _READERS.items():
            if noun.section in sections:
                named = self._object(sections[noun.section], noun.section)
                things[noun] = {name: read(self, name, node, f"{noun.section}.{name}") for name, node in named.items()}
                self._lines |= {(noun, name): node.line for name, node in named.items()}
        if Noun.QUOTA.section in sections:
            things[Noun.QUOTA] = dict(self._quotas(sections[Noun.QUOTA.section]))
        rules = frozenset(self._rules(sections["acls"])) if "acls" in sections else None
        if owned is not None:
            self._check_owned(owned, things, rules or ())
        if self._mistakes:
            raise mistakes_in(self._mistakes)
        return StageFile(
            path=self._path,
            stage=Stage(things=things, rules=rules),
            owned=owned,
            lines=self._lines,
            empty={name: node.line for name, node in sections.items() if node.value is None},
        )

    def _wrong(self, node: Node, field_path: str, message: str) -> None:
        self._mistakes.append(f"{self._path}:{node.line}: {field_path}: {message}")

    @contextmanager
    def _checking(self, node: Node, field_path: str, prefix: str = "") -> Iterator[None]:
        """Notes a PenstockError of the block as a mistake."""
        try:
            yield
        except PenstockError as error:
            self._wrong(node, field_path, error.message.removeprefix(prefix))

    def _object(self, node: Node, field_path: str) -> dict[str, Node]:
        if isinstance(node.value, dict):
            return node.value
        if node.value is not None:
            self._wrong(node, field_path, f"{shown(node.plain())} is no mapping of names to values")
        return {}

    def _fields(self, node: Node, field_path: str, known: Collection[str]) -> dict[str, Node]:
        """The fields that are known. Each other one is a mistake."""
        found = self._object(node, field_path)
        for name in found.keys() - known:
            self._wrong(found[name], field_path, f"unknown field {shown(name)}: known are {', '.join(known)}")
        return {name: each for name, each in found.items() if name in known}

    def _list(self, node: Node, field_path: str) -> list[Node]:
        if isinstance(node.value, list):
            return node.value
        if node.value is not None:
            self._wrong(node, field_path, f"{shown(node.plain())} is no list")
        return []

    def _text(self, node: Node, field_path: str) -> str:
        if isinstance(node.value, str):
            return node.value
        self._wrong(node, field_path, f"{shown(node.plain())} is no text: put it in quotes")
        return ""

    def _texts(self, node: Node, field_path: str) -> list[str]:
        """The texts of a list, or the text alone."""
        if isinstance(node.value, str):
            return [node.value]
        found = [self._text(each, f"{field_path}[{at}]") for at, each in enumerate(self._list(node, field_path))]
        if not found:
            self._wrong(node, field_path, "give one or more")
        return found

    def _settings(
        self, fields: Mapping[str, Node], field_path: str, check: Callable[[Settings], object], prefix: str = ""
    ) -> dict[str, Any]:
        """The settings, each checked alone. A time or a size may have a unit."""
        found: dict[str, Any] = {}
        for name, node in fields.items():
            with self._checking(node, f"{field_path}.{name}", prefix):
                value = with_unit(name, node.plain())
                check({name: value})
                found[name] = value
        return found

    def _ownership(self, node: Node) -> Ownership:
        fields = self._fields(node, "owns", tuple(_PATTERNS))
        found: dict[str, tuple[NamePattern, ...]] = {}
        for name, each in fields.items():
            with self._checking(each, f"owns.{name}"):
                found[name] = _PATTERNS[name](self._texts(each, f"owns.{name}"))
        return Ownership(**found)

    def _check_owned(
        self, owned: Ownership, things: Mapping[Noun, Mapping[str, Settings]], rules: Collection[Rule]
    ) -> None:
        told = "owns does not cover it, so another file may own it: add its name to owns, or leave it to its owner"
        for noun, named in things.items():
            for name in named:
                if not owned.has(noun, name):
                    self._mistakes.append(f"{self._path}:{self._lines[noun, name]}: {noun} {name}: {told}")
        for rule in sorted(rules, key=lambda each: each.place):
            if not owned.has_rule(rule):
                line = self._lines["rule", rule.place]
                self._mistakes.append(f"{self._path}:{line}: rule on {rule.resource_text}: {told}")

    def topic(self, name: str, node: Node, field_path: str) -> Settings:
        fields = dict(self._object(node, field_path))
        with self._checking(node, field_path):
            parse_own_topic_name(name)
        partitions = fields.pop("partitions", None)
        found = self._settings(fields, field_path, partial(alter_config, TopicConfig()))
        if partitions is not None:
            with self._checking(partitions, f"{field_path}.partitions"):
                found["partitions"] = check_partitions(whole_number(partitions.plain()))
        return found

    def group(self, name: str, node: Node, field_path: str) -> Settings:
        with self._checking(node, field_path):
            parse_group_name(name)
        fields = self._object(node, field_path)
        return self._settings(fields, field_path, partial(alter_group_config, _WIDE_GROUP))

    def share_group(self, name: str, node: Node, field_path: str) -> Settings:
        fields = dict(self._object(node, field_path))
        topics = self._topics(fields.pop("topics", None), node, field_path)
        prefix = f"share group {shown(name)}: "
        with self._checking(node, field_path, prefix):
            check_declared_group(name, {})
        found = self._settings(fields, field_path, partial(check_declared_group, name), prefix)
        return {"topics": topics, **found}

    def subscription(self, name: str, node: Node, field_path: str) -> Settings:
        fields = dict(self._object(node, field_path))
        topics = self._topics(fields.pop("topics", None), node, field_path)
        target = self._target(fields.pop("target", None), node, f"{field_path}.target")
        prefix = f"subscription {shown(name)}: "
        with self._checking(node, field_path, prefix):
            check_declared_subscription(name, {})
        retry = self._fields(fields.pop("retry", Node({}, node.line)), f"{field_path}.retry", RETRY)
        for each in fields.keys() & {*RETRY}:
            self._wrong(fields.pop(each), f"{field_path}.{each}", "belongs below retry")
        check = partial(check_declared_subscription, name)
        found = self._settings(fields, field_path, check, prefix)
        found |= self._settings(retry, f"{field_path}.retry", lambda each: check(_bounded(each)), prefix)
        return {"topics": topics, "target": target, **_bounded(found)}

    def schedule(self, name: str, node: Node, field_path: str) -> Settings:
        """The service alone knows whether a cron expression has a next run, and which time zones there are."""
        fields = self._fields(node, field_path, SCHEDULE_FIELDS)
        with self._checking(node, field_path):
            parse_schedule_name(name)
        for each in SCHEDULE_FIELDS[:3]:
            if each not in fields:
                self._wrong(node, field_path, f"{each} is missing: a schedule has cron, topic and record")
        found: dict[str, Any] = {
            each: self._text(fields[each], f"{field_path}.{each}")
            for each in ("cron", "topic", "time_zone")
            if each in fields
        }
        if "cron" in found:
            found["cron"] = " ".join(found["cron"].split())
        if "topic" in found:
            with self._checking(fields["topic"], f"{field_path}.topic"):
                parse_own_topic_name(found["topic"])
        if "enabled" in fields:
            found["enabled"] = fields["enabled"].value
            if not isinstance(found["enabled"], bool):
                self._wrong(fields["enabled"], f"{field_path}.enabled", "must be true or false")
        if "record" in fields:
            found["record"] = self._record(fields["record"], f"{field_path}.record")
        return found

    def _record(self, node: Node, field_path: str) -> Settings:
        """A record as the API takes it; a text is its value."""
        record = node.plain()
        try:
            found = record_json(record)
            content_of(found)
        except PenstockError as error:
            self._wrong(node, field_path, error.message)
            return {}
        except (TypeError, ValueError, AttributeError, KeyError):
            form = "give a text, or key, value and headers (a list of [name, text]), which are texts, too"
            self._wrong(node, field_path, f"{shown(record)} is no record: {form}")
            return {}
        return found

    def _topics(self, topics: Node | None, node: Node, field_path: str) -> list[str]:
        if topics is None:
            self._wrong(node, field_path, "topics is missing: name one or more")
            return []
        found = self._texts(topics, f"{field_path}.topics")
        for each in found:
            with self._checking(topics, f"{field_path}.topics"):
                parse_own_topic_name(each)
        for each in sorted({each for each in found if found.count(each) > 1}):
            self._wrong(topics, f"{field_path}.topics", f"{shown(each)} stands twice: name each topic once")
        return found

    def _target(self, target: Node | None, node: Node, field_path: str) -> Settings:
        """The target as the API takes it. The environment has the secret of an endpoint, or the service has it yet."""
        if target is None:
            self._wrong(node, field_path, 'is missing: give such as {"lambda": "<ARN>"}')
            return {}
        found: dict[str, Any] = {name: each.plain() for name, each in self._object(target, field_path).items()}
        endpoint = found.get("https")
        if isinstance(endpoint, dict):
            endpoint = found["https"] = dict(endpoint)
            variable = endpoint.pop("secret_env", None)
            if "secret" in endpoint:
                self._wrong(target, field_path, "keep the secret out of the file: name a variable by secret_env")
                return {}
            if variable is not None:
                if not isinstance(variable, str) or not os.environ.get(variable):
                    self._wrong(
                        target, field_path, f"secret_env={shown(variable)}: the environment has no such variable"
                    )
                    return {}
                endpoint["secret"] = os.environ[variable]
        checked = found
        if isinstance(endpoint, dict) and "secret" not in endpoint:  # it may be set, so the check gets another
            checked = {"https": {**endpoint, "secret": _ANY_SECRET}}
        with self._checking(target, field_path):
            parse_target(checked, is_http_allowed=True)
        return found

    def _rules(self, node: Node) -> Iterator[Rule]:
        """The rules of all combinations. Their number is bounded before they are made."""
        count = 0
        for at, each in enumerate(self._list(node, "acls")):
            path = f"acls[{at}]"
            fields = self._fields(each, path, RULE_FIELDS)
            missing = [name for name in RULE_FIELDS[:3] if name not in fields]
            if missing:
                self._wrong(each, path, f"{' and '.join(missing)} missing")
                continue
            permission = self._text(fields["permission"], f"{path}.permission") if "permission" in fields else ALLOW
            parts = {name: self._texts(fields[name], f"{path}.{name}") for name in RULE_FIELDS[:3]}
            mistakes = len(self._mistakes)
            with self._checking(each, path):
                parse_rule("*", ALL, "*", permission)
            for name, texts in parts.items():
                for text in texts:
                    with self._checking(fields[name], path):
                        _check_part(name, text)
            count += prod(map(len, parts.values()))
            if count > ACL_RULES_MAX:
                self._wrong(each, path, f"with it the file has {count:,} rules: a stage has {ACL_RULES_MAX:,} at most")
                return
            if len(self._mistakes) > mistakes:
                continue
            for principal, operation, resource in product(*parts.values()):
                rule = parse_rule(full_principal(principal, None), operation, resource, permission)
                self._lines["rule", rule.place] = each.line
                yield rule

    def _quotas(self, node: Node) -> Iterator[tuple[str, Settings]]:
        seen: set[str] = set()
        for at, each in enumerate(self._list(node, Noun.QUOTA.section)):
            path = f"{Noun.QUOTA.section}[{at}]"
            fields = dict(self._object(each, path))
            subjects = [subject for subject in Subject if subject in fields]
            if len(subjects) != 1:
                self._wrong(each, path, "give one of principal and topic")
                continue
            [subject] = subjects
            given = self._text(fields.pop(subject), f"{path}.{subject}")
            is_shared = fields.pop("shared", Node(False, each.line)).value
            if not isinstance(is_shared, bool):
                self._wrong(each, f"{path}.shared", f"{shown(is_shared)}: must be true or false")
            limits = self._settings(fields, path, partial(parse_quota, subject, "*"))
            name = given
            with self._checking(each, f"{path}.{subject}"):
                name = parse_quota(subject, full_principal(given, None), limits, is_shared=is_shared is True).name
            if is_shared is True:
                limits["shared"] = True
            if not fields:
                self._wrong(each, path, "it has no limit: give at least one, such as produce_bytes_per_s: 10MB")
            full = f"{subject} {name}"
            if full in seen:
                self._wrong(each, path, f"{full} has a quota above: write one quota with all limits")
            seen.add(full)
            self._lines[Noun.QUOTA, full] = each.line
            yield full, limits


_READERS: Mapping[Noun, Callable[[_Reader, str, Node, str], Settings]] = {
    Noun.TOPIC: _Reader.topic,
    Noun.GROUP: _Reader.group,
    Noun.SHARE_GROUP: _Reader.share_group,
    Noun.SUBSCRIPTION: _Reader.subscription,
    Noun.SCHEDULE: _Reader.schedule,
}
# Each setting of a group is checked in this one, whatever the others are.
_WIDE_GROUP = GroupConfig(session_timeout_ms=SESSION_TIMEOUT_MS_MAX, heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS_MIN)
_ANY_SECRET = "whsec_" + "A" * 43 + "="


def _bounded(settings: Settings) -> dict[str, Any]:
    """The settings, in which no bound of an age is None, as the core has it."""
    return {name: None if (name, value) == ("age_ms_max", UNLIMITED) else value for name, value in settings.items()}


def _check_part(name: str, text: str) -> None:
    """Checks a part of a rule alone, so that its mistake is told once. Raises INVALID_REQUEST."""
    match name:
        case "principal":
            parse_principal_pattern(full_principal(text, None))
        case "operations":
            parse_rule("*", text, "*")
        case _:
            parse_rule("*", ALL, text)
