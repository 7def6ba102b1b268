"""List access rules, in the order of their places: by resource, then operation, permission and principal."""

from collections.abc import Sequence

from penstock_core.acls.rule import Rule
from penstock_service.instance.instance import Instance


def list_acls(
    instance: Instance, limit: int, after: str, *, principal: str | None = None, resource: str | None = None
) -> tuple[Sequence[Rule], str | None]:
    """Up to `limit` rules behind the place `after`, and the `after` of the next page, or None. One read.

    With `principal` or `resource`, only the rules with that very text: a pattern stands for itself.
    """
    rules = sorted(instance.stores.acls.get().rules, key=lambda rule: rule.place)
    found = [
        rule
        for rule in rules
        if rule.place > after and principal in (None, str(rule.principal)) and resource in (None, rule.resource_text)
    ]
    return found[:limit], found[limit - 1].place if len(found) > limit else None
