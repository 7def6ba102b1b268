"""One rule: it allows or denies a principal an operation on resources.

Principals and resources are names or beginnings of names. A rule as text, with its parts in the order of a list:

    topic:orders-*  write  allow  arn:aws:iam::111122223333:role/shop

Rights: an operation on one resource, which a principal may have.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from penstock_core.acls.principal import FEDERATED, role_of_session
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import NAME_CHARACTERS, is_reserved
from penstock_core.limits import ACL_PRINCIPAL_LENGTH_MAX, NAME_LENGTH_MAX
from penstock_core.text import check_label

ALL = "all"
ALLOW = "allow"
DENY = "deny"
_SCHEMES = ("arn:", "jwt:")
_NAME = re.compile(NAME_CHARACTERS, re.ASCII)
_ROLE = ":role/"
_SESSION = re.compile(r"(arn:[^:]*:)sts::([^:]*):assumed-role/(.*)", re.DOTALL)
EVERY = "*"


@dataclass(frozen=True, slots=True, order=True)
class NamePattern:
    """`text` is the whole name, or with `is_prefix` its beginning; "" as a beginning matches all names."""

    text: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.text}{EVERY}" if self.is_prefix else self.text

    def matches(self, name: str) -> bool:
        """True for a name that the pattern is about. Nothing is about "", which is no name."""
        return bool(name) and (name.startswith(self.text) if self.is_prefix else name == self.text)


class Operation(Enum):
    """The work of a caller on a resource."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DESCRIBE = "describe"
    ALTER = "alter"
    DELETE = "delete"


class Kind(Enum):
    """The kinds of resources. There is one service, so that one has no name."""

    TOPIC = "topic"
    GROUP = "group"
    SHARE_GROUP = "share_group"
    SUBSCRIPTION = "subscription"
    SCHEDULE = "schedule"
    TRANSACTIONAL_ID = "transactional_id"
    SERVICE = "service"


# The caller of each of these sees the resource anyway. As in Kafka, an allowance of one is an allowance to describe.
IMPLY_DESCRIBE = frozenset({Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One operation on one resource. `name` is "" for the service."""

    operation: Operation
    kind: Kind
    name: str = ""

    @property
    def resource(self) -> str:
        """The resource as a rule writes it: `topic:orders`, or `service`."""
        return self.kind.value if self.kind is Kind.SERVICE else f"{self.kind.value}:{self.name}"

    @property
    def is_reserved(self) -> bool:
        """True for the right to read a topic of the service's own, such as the audit trail."""
        return self.operation is Operation.READ and self.kind is Kind.TOPIC and is_reserved(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`operation` None stands for all operations, `kind` None for all resources of all kinds."""

    principal: NamePattern
    operation: Operation | None
    kind: Kind | None
    resource: NamePattern
    is_allow: bool = True

    @property
    def resource_text(self) -> str:
        """The resource as a caller writes it: `topic:orders-*`, `service`, or `*`."""
        if self.kind is None:
            return EVERY
        return self.kind.value if self.kind is Kind.SERVICE else f"{self.kind.value}:{self.resource}"

    @property
    def place(self) -> str:
        """The rule as text: its place in the list of all rules, and in a request for what follows it."""
        parts = self.to_json()
        return f"{parts['resource']} {parts['operation']} {parts['permission']} {parts['principal']}"

    def to_json(self) -> dict[str, str]:
        """The rule as the API shows it. `parse_rule` is the inverse."""
        return {
            "principal": str(self.principal),
            "operation": ALL if self.operation is None else self.operation.value,
            "resource": self.resource_text,
            "permission": ALLOW if self.is_allow else DENY,
        }


def parse_rule(principal: str, operation: str, resource: str, permission: str = ALLOW) -> Rule:
    """The rule that these texts describe. Raises INVALID_REQUEST that names the part, its value and the way out."""
    kind, name = _parse_resource(resource)
    if permission not in (ALLOW, DENY):
        raise _invalid("permission", permission, f"must be {ALLOW} or {DENY}")
    return Rule(
        principal=parse_principal_pattern(principal),
        operation=None if operation == ALL else parse_operation(operation),
        kind=kind,
        resource=name,
        is_allow=permission == ALLOW,
    )


def parse_operation(text: str) -> Operation:
    """The operation of that name. Raises INVALID_REQUEST."""
    known = {each.value: each for each in Operation}
    if text not in known:
        raise _invalid("operation", text, f"must be one of {', '.join(known)}, and {ALL} in a rule")
    return known[text]


def parse_resource(text: str) -> tuple[Kind, str]:
    """The kind and name of one resource. Raises INVALID_REQUEST, also for a pattern."""
    kind, name = _parse_resource(text)
    if kind is None or name.is_prefix:
        raise _invalid("resource", text, f"name one resource, without {EVERY}")
    return kind, name.text


def parse_principal_pattern(text: str) -> NamePattern:
    """The pattern of a principal, in which sessions stand for their roles. Raises INVALID_REQUEST."""
    if not 0 < len(text) <= ACL_PRINCIPAL_LENGTH_MAX:
        raise _invalid("principal", text, f"give 1 to {ACL_PRINCIPAL_LENGTH_MAX} characters")
    check_label("principal", text)
    if text != EVERY and not text.startswith(_SCHEMES):
        raise _invalid("principal", text, f"give an IAM ARN, jwt:ISSUER#SUBJECT, or {EVERY} for everybody")
    pattern = parse_name_pattern(text)
    if EVERY in pattern.text:
        raise _invalid("principal", text, f"{EVERY} stands at the end only")
    if session := _SESSION.fullmatch(pattern.text):
        pattern = _role_of_sessions(pattern, *session.groups())
    arn, federated, user = pattern.text.partition(FEDERATED)
    if federated and text.startswith("arn:"):
        if user not in ("", "/"):
            raise _invalid("principal", text, f"a federated user chooses its name: give {arn}{FEDERATED} for all")
        return NamePattern(f"{arn}{FEDERATED}")
    _, role, rest = pattern.text.partition(_ROLE)
    if not role or not pattern.text.startswith("arn:"):
        return pattern
    if not pattern.is_prefix:
        return NamePattern(role_of_session(pattern.text))
    if "/" in rest:
        raise _invalid("principal", text, "a session does not tell the path of its role, so leave the path out")
    return pattern


def _role_of_sessions(pattern: NamePattern, prefix: str, account: str, rest: str) -> NamePattern:
    """The pattern of the role. `ROLE/*` and `ROLE/session` are the role, and `RO*` is the beginning of its name."""
    name, slash, _ = rest.partition("/")
    return NamePattern(f"{prefix}iam::{account}{_ROLE}{name}", is_prefix=pattern.is_prefix and not slash)


def _parse_resource(text: str) -> tuple[Kind | None, NamePattern]:
    everything = NamePattern("", is_prefix=True)
    if text == EVERY:
        return None, everything
    if text == Kind.SERVICE.value:
        return Kind.SERVICE, NamePattern("")
    word, colon, name = text.partition(":")
    kinds = {each.value: each for each in Kind if each is not Kind.SERVICE}
    if word not in kinds or not colon:
        raise _invalid("resource", text, f"give {Kind.SERVICE.value}, or KIND:NAME with a kind of {', '.join(kinds)}")
    pattern = parse_name_pattern(name)
    is_name = pattern.text not in (".", "..") and _NAME.fullmatch(pattern.text) is not None
    if len(pattern.text) > NAME_LENGTH_MAX or not (is_name or pattern == everything):
        raise _invalid(
            "resource", text, f"a name has 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and may end in {EVERY}"
        )
    return kinds[word], pattern


def _invalid(field: str, value: str, way_out: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, f"{field}={shown(value)}: {way_out}")


def parse_name_pattern(text: str) -> NamePattern:
    """The pattern of a text, in which a `*` at the end stands for any characters, also none."""
    return NamePattern(text[:-1], is_prefix=True) if text.endswith(EVERY) else NamePattern(text)


class NamePatterns:
    """Many patterns, of which any may match. A check costs one look-up for each length of a beginning."""

    __slots__ = ("_beginnings", "_lengths", "_names")

    def __init__(self, patterns: Iterable[NamePattern]) -> None:
        known = set(patterns)
        self._names = frozenset(each.text for each in known if not each.is_prefix)
        self._beginnings = frozenset(each.text for each in known if each.is_prefix)
        self._lengths = sorted({len(each) for each in self._beginnings})

    def names(self, name: str) -> bool:
        """True if one of the patterns is the name itself."""
        return name in self._names

    def match(self, name: str) -> bool:
        """True if one of the patterns matches the name."""
        if name in self._names:
            return True
        size = len(name)
        for length in self._lengths:
            if length > size:
                return False
            if name[:length] in self._beginnings:
                return True
        return False
