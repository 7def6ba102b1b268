"""The rights of the caller itself: whether they hide something from it, and whether it keeps them.

The caller knows the rules about itself, and the decision about one right. It does not know the stage's default, but
the reason of a decision tells it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from penstock.admin.admin import Admin
from penstock.api.subscription_calls import users_among
from penstock.errors import AccessDeniedError, ErrorCode, PenstockError
from penstock.model.access import AccessDecision
from penstock.model.push import Subscription, TopicUser, TopicUserCounts
from penstock.model.share import ShareGroup
from penstock_core.acls.rule import Kind, NamePattern, Operation, Right, Rule, parse_rule
from penstock_core.acls.rule_set import Reason, RuleSet
from penstock_core.acls.tokens import AclSettings

_WORDS: Mapping[Kind, str] = {Kind.SHARE_GROUP: "share groups", Kind.SUBSCRIPTION: "subscriptions"}
_ANY_NAME = "-"
_EVERY_NAME = NamePattern("", is_prefix=True)


def visible_topic_users(admin: Admin, topics: Collection[str]) -> tuple[list[TopicUser], list[str]]:
    """The users of the topics that the caller sees, and why there may be more. A refused list hides only its own.

    The service counts the users of a topic for each that may delete it. So some are hidden only if there are some. An
    earlier service does not count, and its rules tell whether some may be hidden.
    """
    if not topics:
        return [], []
    groups: list[ShareGroup] = []
    subscriptions: list[Subscription] = []
    refused: dict[Kind, str] = {}
    try:
        groups = admin.list_share_groups()
    except AccessDeniedError as error:
        refused[Kind.SHARE_GROUP] = str(error)
    try:
        subscriptions = admin.list_subscriptions()
    except AccessDeniedError as error:
        refused[Kind.SUBSCRIPTION] = str(error)
    users = {topic: users_among(topic, groups, subscriptions) for topic in topics}
    try:
        hidden = [_not_shown(topic, admin.count_topic_users(topic), each) for topic, each in users.items()]
    except PenstockError as error:
        if error.code not in (ErrorCode.UNKNOWN_ROUTE, ErrorCode.ACCESS_DENIED, ErrorCode.NOT_AUTHORIZED):
            raise
        kinds = _WORDS.keys() - refused.keys()
        lines = [f"you may not list {_WORDS[kind]}: {why}" for kind, why in refused.items()]
        hidden = [f"others may use {', '.join(topics)}: {why}" for why in (*lines, *hidden_users(admin, kinds))]
    return [each for some in users.values() for each in some], [*filter(None, hidden)]


def _not_shown(topic: str, counted: TopicUserCounts, seen: Collection[TopicUser]) -> str:
    """The numbers of users that are counted and not seen, "" if there are none."""
    names = {word: {each.name for each in seen if f"{each.kind}s" == word} for word in _WORDS.values()}
    counts = {"share groups": counted.share_groups, "subscriptions": counted.subscriptions}
    more = {word: count - len(names[word]) for word, count in counts.items() if count > len(names[word])}
    told = [f"{count} {word if count > 1 else word[:-1]}" for word, count in more.items()]
    return f"{topic} has users that you may not see: {', '.join(told)}" if told else ""


def hidden_users(admin: Admin, kinds: Collection[Kind] = _WORDS.keys()) -> list[str]:
    """The reasons for which lists of these kinds may not have all; none if they have. One request and one a kind."""
    try:
        rules = rules_of(admin)
        return [
            f"you may not see all {_WORDS[kind]}: the right to describe '{kind.value}:*' shows them"
            for kind in _WORDS
            if kind in kinds and not _sees_all(admin.check_acl("describe", f"{kind.value}:{_ANY_NAME}"), kind, rules)
        ]
    except AccessDeniedError as error:
        return [
            f"you may not ask which {' and '.join(_WORDS[kind] for kind in _WORDS if kind in kinds)} you see: {error}"
        ]


def rules_of(admin: Admin) -> frozenset[Rule]:
    """The rules that the caller may see: those about itself, at least. One request per page."""
    return frozenset(
        parse_rule(each.principal, each.operation, each.resource, each.permission) for each in admin.list_acls()
    )


def loses_alter(before: AccessDecision, after: Collection[Rule]) -> bool:
    """True if the caller may alter the service, by the decision `before`, and may no longer by the rules `after`.

    A caller that has the right by a rule and by the stage's default, too, is told of a loss that is none.
    """
    right = Right(operation=Operation.ALTER, kind=Kind.SERVICE)
    return before.is_allowed and not _allows(before, right, after)


def _sees_all(found: AccessDecision, kind: Kind, rules: Collection[Rule]) -> bool:
    """The decision if a name were covered only by rules about all names, and by each rule that denies."""
    return _allows(found, Right(operation=Operation.DESCRIBE, kind=kind, name=_ANY_NAME), _about_all_names(rules))


def _about_all_names(rules: Collection[Rule]) -> Iterator[Rule]:
    for rule in rules:
        if not rule.is_allow:
            yield replace(rule, resource=_EVERY_NAME)
        elif rule.resource == _EVERY_NAME:
            yield rule


def _allows(found: AccessDecision, right: Right, rules: Collection[Rule] | Iterator[Rule]) -> bool:
    if found.reason == Reason.SUPER.value:
        return True
    is_default = found.is_allowed and found.reason == Reason.DEFAULT.value
    settings = AclSettings(allows_by_default=is_default)
    return RuleSet([*rules], settings).of(found.principal).decide(right).is_allowed
