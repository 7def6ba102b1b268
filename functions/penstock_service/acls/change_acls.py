"""Add access rules and remove others, in one step."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock_core.acls.rule import Kind, Operation, Rule
from penstock_core.acls.rule_set import REVISION_BYTES, UNRESTRICTED, Access, OwnedRules, Owners
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_ATTEMPTS_MAX
from penstock_service.instance.instance import Instance

_PAUSE_MS = 40  # times the attempts made, and up to twice that


@dataclass(frozen=True, slots=True, kw_only=True)
class AclChange:
    """The rules that the call has added and removed: those that were there before, or were not, are not among them."""

    added: frozenset[Rule]
    removed: frozenset[Rule]


def change_acls(
    instance: Instance, added: Collection[Rule], removed: Collection[Rule], *, owner: str | None = None
) -> AclChange:
    """All of the change or none. Other instances decide by it within `ACL_AGE_MS_MAX`, this one at once.

    `owner` is the resource of a template that asks: rules that others declare, too, stay. Two reads and one
    transaction, and again if another request changes the rules meanwhile. A repeat changes nothing. Raises
    TOO_MANY_ACLS, CONCURRENT_UPDATE if others change the rules all the time, and UNSUPPORTED_FORMAT for owners of a
    later release. An operator who only removes rules does not need the owners, and leaves those that nobody can read.
    """
    store, attempt = instance.stores.acls, 0
    while True:
        attempt += 1
        book = store.get()
        owners = _owners(
            instance, is_needed=owner is not None or bool(added)
        )  # behind the rules: `change` compares revisions
        old = OwnedRules(book=book, owners=owners or {})
        new = old.change(added, removed, instance.entropy.random_bytes(REVISION_BYTES), owner)
        instance.acl_cache.forget()
        if new is old:
            return AclChange(added=frozenset(), removed=frozenset())
        try:
            store.change(book.revision, new.book, None if owners in (None, new.owners) else new.owners)
        except PenstockError as error:
            if error.code not in (ErrorCode.CONCURRENT_UPDATE, ErrorCode.THROTTLED) or attempt == ACL_ATTEMPTS_MAX:
                raise
        else:
            return AclChange(added=new.book.rules - book.rules, removed=book.rules - new.book.rules)
        share = instance.entropy.random_bytes(1)[0] / 256
        instance.clock.sleep_ms(_PAUSE_MS * attempt * (1 + share))


def _owners(instance: Instance, *, is_needed: bool) -> Owners | None:
    """The owners of the rules, None if this release cannot read them and they are not needed."""
    try:
        return instance.stores.acls.owners()
    except PenstockError as error:
        if is_needed or error.code is not ErrorCode.UNSUPPORTED_FORMAT:
            raise
        instance.telemetry.log("acl_owners_unread", error=error.code.name)
        return None


def list_acls(
    instance: Instance,
    limit: int,
    after: str,
    *,
    access: Access = UNRESTRICTED,
    principal: str | None = None,
    resource: str | None = None,
) -> tuple[Sequence[Rule], str | None]:
    """Up to `limit` rules behind the place `after`, and the `after` of the next page, or None. One read.

    With `principal` or `resource`, only the rules with that very text: a pattern stands for itself. Without the right
    to describe the service, only the rules whose pattern matches the caller.
    """
    shown = instance.stores.acls.get().rules
    if not access.may(Operation.DESCRIBE, Kind.SERVICE):
        shown = frozenset(rule for rule in shown if rule.principal.matches(access.principal.name))
    rules = sorted(shown, key=lambda rule: rule.place)
    found = [
        rule
        for rule in rules
        if rule.place > after and principal in (None, str(rule.principal)) and resource in (None, rule.resource_text)
    ]
    return found[:limit], found[limit - 1].place if len(found) > limit else None
