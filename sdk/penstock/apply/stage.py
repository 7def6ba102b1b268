"""A stage as data: what a file wants, and what is there. And what a file owns of a stage that several files share."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock_core.acls.rule import NamePattern, Rule, parse_name_pattern
from penstock_core.quotas.quota import Subject

Settings = Mapping[str, Any]


class Noun(StrEnum):
    """The kinds of things that have a name and settings, in the words of messages."""

    TOPIC = "topic"
    GROUP = "group"
    SHARE_GROUP = "share group"
    SUBSCRIPTION = "subscription"
    SCHEDULE = "schedule"
    QUOTA = "quota"

    @property
    def section(self) -> str:
        """The section of the file that has them."""
        return f"{self.value.replace(' ', '_')}s"


SECTIONS = ("owns", *(noun.section for noun in Noun if noun is not Noun.QUOTA), "acls", Noun.QUOTA.section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Things by noun and name, and the rules. A noun that is missing, or None, is no part of the file.

    Topics and targets are settings, too. So are the limits of a quota, whose name is `principal <name>` or
    `topic <name>`.
    """

    things: Mapping[Noun, Mapping[str, Settings]] = field(default_factory=dict)
    rules: frozenset[Rule] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The patterns of what a file owns. A rule belongs to the owner of its resource."""

    names: tuple[NamePattern, ...] = ()
    principals: tuple[NamePattern, ...] = ()

    def has(self, noun: Noun, name: str) -> bool:
        """True if the file owns the thing of this name."""
        if noun is Noun.QUOTA:
            subject, _, name = name.partition(" ")
            patterns = self.principals if subject == Subject.PRINCIPAL else self.names
        else:
            patterns = self.names
        return _covers(patterns, parse_name_pattern(name))

    def has_rule(self, rule: Rule) -> bool:
        """True if the file owns every resource that the rule is about."""
        return _covers(self.names, rule.resource)


def _covers(patterns: Collection[NamePattern], name: NamePattern) -> bool:
    return any(name == each or (each.is_prefix and name.text.startswith(each.text)) for each in patterns)
