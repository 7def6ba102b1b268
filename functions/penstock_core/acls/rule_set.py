"""Decisions by all rules: deny wins, then allow, then the stage's default.

The records of the service's own topics, such as the audit trail, tell about everybody. So only a rule with the topic's
exact name allows to read one: neither a pattern nor the stage's default does.

A token's subject is a stranger until a rule names it, and so are federated users. Neither the stage's default nor its
super principals are about them. Of the patterns that allow, only those are that name the token's issuer, or federated
users. Each pattern that denies is about them.

The rules are sorted once for each principal, and kept. A check then costs a few look-ups, however many rules there are.

All rules of a stage as they are stored, and changes to them.

A revision is random, not a count: a table that was restored from a backup never has the revision of other rules.

Owners are the resources of templates that declare a rule. A rule goes with the last of them. OUTSIDE stands for all
others: operators, and resources that a release up to 0.1.0 has made.

The rights of one caller: handlers and use cases ask them before any work.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock_core.acls.principal import ANONYMOUS, FEDERATED, Principal, is_stranger, is_token
from penstock_core.acls.rule import IMPLY_DESCRIBE, Kind, NamePattern, NamePatterns, Operation, Right, Rule
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import ACL_PRINCIPALS_REMEMBERED_MAX, ACL_RULES_MAX

_Place = tuple[Operation, Kind]
_NO_PATTERNS = NamePatterns(())
REVISION_BYTES = 8
OUTSIDE = ""
_BY_OPERATORS = frozenset({OUTSIDE})
Owners = Mapping[Rule, frozenset[str]]
NO_REVISION = ""


class Reason(Enum):
    """The cause of a decision."""

    SUPER = "super principal"
    DENIED = "a deny rule"
    ALLOWED = "an allow rule"
    RESERVED = "whether an allow rule has the exact name"
    DEFAULT = "the stage's default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer to a right: given or not, and the cause."""

    is_allowed: bool
    reason: Reason


class PrincipalRules:
    """The rules of one principal."""

    __slots__ = ("_allowed", "_allows_by_default", "_denied", "_is_super")

    def __init__(self, rules: Iterable[Rule], *, allows_by_default: bool, is_super: bool = False) -> None:
        self._allows_by_default = allows_by_default
        self._is_super = is_super
        denied: dict[_Place, list[NamePattern]] = {}
        allowed: dict[_Place, list[NamePattern]] = {}
        for rule in rules:
            for place in _places(rule):
                (allowed if rule.is_allow else denied).setdefault(place, []).append(rule.resource)
        self._denied = _indexed(denied)
        self._allowed = _indexed(allowed)

    def decide(self, right: Right) -> Decision:
        """Decides about one right of the principal."""
        if self._is_super:
            return Decision(is_allowed=True, reason=Reason.SUPER)
        place = (right.operation, right.kind)
        if self._denied.get(place, _NO_PATTERNS).match(right.name):
            return Decision(is_allowed=False, reason=Reason.DENIED)
        allowed = self._allowed.get(place, _NO_PATTERNS)
        if right.is_reserved:
            return Decision(is_allowed=allowed.names(right.name), reason=Reason.RESERVED)
        if allowed.match(right.name):
            return Decision(is_allowed=True, reason=Reason.ALLOWED)
        return Decision(is_allowed=self._allows_by_default, reason=Reason.DEFAULT)


@dataclass(slots=True)
class RuleSet:
    """All rules of a stage under its settings. It remembers what it has sorted for a principal."""

    rules: Collection[Rule]
    settings: AclSettings
    _super: NamePatterns = field(init=False)
    _by_name: dict[str, list[Rule]] = field(init=False, default_factory=dict)
    _by_beginning: dict[str, list[Rule]] = field(init=False, default_factory=dict)
    _sorted: dict[str, PrincipalRules] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._super = NamePatterns(self.settings.super_principals)
        for rule in self.rules:
            by = self._by_beginning if rule.principal.is_prefix else self._by_name
            by.setdefault(rule.principal.text, []).append(rule)

    def of(self, principal: str) -> PrincipalRules:
        """The rules that are about the principal of that name.

        "" is a request whose caller has no name. No rule allows it anything, and what everybody is denied, it is, too.
        """
        found = self._sorted.get(principal)
        if found is None:
            if len(self._sorted) >= ACL_PRINCIPALS_REMEMBERED_MAX:
                self._sorted.clear()
            found = self._sorted[principal] = self._sort(principal)
        return found

    def _sort(self, principal: str) -> PrincipalRules:
        if not principal:
            denies = [rule for rule in self._by_beginning.get("", ()) if not rule.is_allow]
            return PrincipalRules(denies, allows_by_default=self.settings.allows_by_default)
        rules = [*self._by_name.get(principal, ())]
        for beginning, those in self._by_beginning.items():
            if principal.startswith(beginning):
                rules += those
        if is_stranger(principal):
            return PrincipalRules((rule for rule in rules if _is_about_strangers(rule)), allows_by_default=False)
        return PrincipalRules(
            rules, allows_by_default=self.settings.allows_by_default, is_super=self._super.match(principal)
        )


def _is_about_strangers(rule: Rule) -> bool:
    text = rule.principal.text
    return not rule.is_allow or (is_token(text) and "#" in text) or text.endswith(FEDERATED)


def _places(rule: Rule) -> Iterable[_Place]:
    operations = set(Operation) if rule.operation is None else {rule.operation}
    if rule.is_allow and operations & IMPLY_DESCRIBE:
        operations.add(Operation.DESCRIBE)
    kinds = (*Kind,) if rule.kind is None else (rule.kind,)
    return ((operation, kind) for operation in operations for kind in kinds)


def _indexed(patterns: Mapping[_Place, list[NamePattern]]) -> dict[_Place, NamePatterns]:
    return {place: NamePatterns(each) for place, each in patterns.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBook:
    """The rules, and the revision that tells whether they have changed; NO_REVISION before the first change."""

    revision: str = NO_REVISION
    rules: frozenset[Rule] = frozenset()


EMPTY_BOOK = RuleBook()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRules:
    """The rules, and the owners of those that resources of templates declare. Owners of other rules mean nothing."""

    book: RuleBook = EMPTY_BOOK
    owners: Owners = field(default_factory=dict)

    def change(
        self, added: Collection[Rule], removed: Iterable[Rule], entropy: bytes, owner: str | None = None
    ) -> "OwnedRules":
        """These with some rules added and others removed; the same object if that changes nothing.

        An owner releases the rules that it removes, and they go if no other owner is left. Without `owner` an operator
        asks: the rules go at once. `entropy` are `REVISION_BYTES` random bytes. Raises TOO_MANY_ACLS.
        """
        before = {rule: self.owners.get(rule, _BY_OPERATORS) for rule in self.book.rules}
        after = dict(before)
        for rule in removed:
            left = after.pop(rule, frozenset()) - {owner} if owner is not None else frozenset[str]()
            if left:
                after[rule] = left
            else:
                after.pop(rule, None)
        for rule in added:
            after[rule] = after.get(rule, frozenset()) | {owner or OUTSIDE}
        if after == before:
            return self
        owners = {rule: names for rule, names in after.items() if names != _BY_OPERATORS}
        return OwnedRules(book=_changed(self.book, frozenset(after), entropy), owners=owners)


def _changed(book: RuleBook, rules: frozenset[Rule], entropy: bytes) -> RuleBook:
    if len(rules) > ACL_RULES_MAX and len(rules) > len(book.rules):
        raise PenstockError(
            ErrorCode.TOO_MANY_ACLS,
            f"{len(rules)} rules: {ACL_RULES_MAX} at most. Remove some, or name resources by their beginning and a *",
            limit=ACL_RULES_MAX,
        )
    return RuleBook(revision=entropy.hex(), rules=rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rights of a principal, by the rules as they were when the request came."""

    principal: Principal
    rules: PrincipalRules

    def may(self, operation: Operation, kind: Kind, name: str = "") -> bool:
        """True if the principal has the right."""
        return self.rules.decide(Right(operation=operation, kind=kind, name=name)).is_allowed

    def sees(self, kind: Kind) -> Callable[[str], bool]:
        """Tells of a name whether the principal may describe the resource of this kind."""
        return lambda name: self.may(Operation.DESCRIBE, kind, name)

    def refusal(self, operation: Operation, kind: Kind, name: str = "") -> PenstockError | None:
        """NOT_AUTHORIZED if the principal does not have the right. It is the same whether the resource exists."""
        right = Right(operation=operation, kind=kind, name=name)
        decision = self.rules.decide(right)
        return None if decision.is_allowed else _not_authorized(self.principal, right, decision.reason)

    def require(self, operation: Operation, kind: Kind, *names: str) -> None:
        """Raises NOT_AUTHORIZED for the first of these on which the principal has no right. The service is ""."""
        for name in names:
            if error := self.refusal(operation, kind, name):
                raise error

    def require_either(self, first: Operation, second: Operation, kind: Kind, name: str) -> None:
        """Raises NOT_AUTHORIZED, for the first operation, if the principal has none of the two rights."""
        if not self.may(second, kind, name):
            self.require(first, kind, name)

    def readable(self, topics: Iterable[str]) -> list[str]:
        """The topics among these that the principal may read."""
        return [name for name in topics if self.may(Operation.READ, Kind.TOPIC, name)]


# The service works for itself under these rights: its deployment, its jobs, its deliveries.
UNRESTRICTED = Access(principal=ANONYMOUS, rules=PrincipalRules((), allows_by_default=True, is_super=True))


def _not_authorized(principal: Principal, right: Right, reason: Reason) -> PenstockError:
    name = principal.name or "a caller without a name"
    resource = shown(right.resource)
    if reason is Reason.DENIED:
        way_out = "a deny rule says so, `penstock acls list` shows it"
    else:
        way_out = f"`penstock acls add {shown(principal.name)} {right.operation.value} {resource}` grants it"
    return PenstockError(
        ErrorCode.NOT_AUTHORIZED,
        f"{name} may not {right.operation.value} {resource}: {way_out}",
        principal=principal.name,
        operation=right.operation.value,
        resource=right.resource[:_RESOURCE_SHOWN_MAX],
    )


_RESOURCE_SHOWN_MAX = 300
