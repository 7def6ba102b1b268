"""The rights of one caller: handlers and use cases ask them before any work."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock_core.acls.principal import ANONYMOUS, Principal
from penstock_core.acls.right import Kind, Operation, Right
from penstock_core.acls.rule_set import PrincipalRules, Reason
from penstock_core.errors import ErrorCode, PenstockError, shown


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
