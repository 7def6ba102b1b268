"""Access rules: who may do what, a check, a new rule, and the removal of one."""

from penstock.console.page import Asked, Moved, Page, Route, Shown
from penstock.console.paging import paged
from penstock.model.access import AccessRule
from penstock_core.acls.rule import ALL, ALLOW, DENY, Operation

OPERATIONS = tuple(each.value for each in Operation)


def show(asked: Asked) -> Shown:
    """All rules that hold the text of the search, and the answer to a check, if one is asked for."""
    wanted = asked.word("q").lower()
    found = [
        each for each in asked.admin.list_acls() if wanted in each.principal.lower() or wanted in each.resource.lower()
    ]
    decision = None
    if asked.word("resource"):
        decision = asked.admin.check_acl(
            asked.word("operation"), asked.word("resource"), principal=asked.word("principal") or None
        )
    return Shown(
        template="acls.html",
        title="Access rules",
        facts={
            "rules": paged(found, asked),
            "q": asked.word("q"),
            "decision": decision,
            "asked": asked,
            "operations": [(each, each) for each in OPERATIONS],
            "rule_operations": [(each, each) for each in (*OPERATIONS, ALL)],
            "permissions": [(ALLOW, ALLOW), (DENY, DENY)],
        },
    )


def add(asked: Asked) -> Moved:
    """Add the rule of the form."""
    rule = _rule(asked)
    done = asked.admin.change_acls(add=[rule])
    return Moved(to="/acls", said=f"Added: {_text(rule)}." if done.added else "There is such a rule already.")


def remove(asked: Asked) -> Moved:
    """Remove the rule of the form. The user types its resource."""
    rule = _rule(asked)
    asked.check_name(rule.resource)
    done = asked.admin.change_acls(remove=[rule])
    return Moved(to="/acls", said=f"Removed: {_text(rule)}." if done.removed else "There is no such rule.")


def _rule(asked: Asked) -> AccessRule:
    return AccessRule(
        principal=asked.word("principal"),
        operation=asked.word("operation"),
        resource=asked.word("resource"),
        permission=asked.word("permission"),
    )


def _text(rule: AccessRule) -> str:
    return f"{rule.permission} {rule.principal} {rule.operation} {rule.resource}"


PAGE = Page(
    menu="Access",
    path="/acls",
    routes=(
        Route(method="GET", path="/acls", answer=show),
        Route(method="POST", path="/acls/add", answer=add),
        Route(method="POST", path="/acls/remove", answer=remove),
    ),
)
