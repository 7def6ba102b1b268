"""/v1/acls: list access rules, change them, and ask what they decide."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Query

from penstock_core.acls.principal import Principal, named_principal
from penstock_core.acls.rule import (
    ALLOW,
    Kind,
    Operation,
    Right,
    Rule,
    parse_operation,
    parse_principal_pattern,
    parse_resource,
    parse_rule,
)
from penstock_core.acls.rule_set import Access
from penstock_core.acls.tokens import full_principal, trusted_principal
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_CHANGES_MAX, ACL_LIST_MAX, ACL_PRINCIPAL_LENGTH_MAX
from penstock_handlers.edge.json_api import PAGED, Digits, JsonApp, caller_of, fitting_page, instance_of, serve_with
from penstock_handlers.edge.models.acl_models import (
    AclChanges,
    AclDecision,
    AclList,
    AclRuleJson,
    ChangeAcls,
    CheckAcl,
    rule_answer,
)
from penstock_service.acls.change_acls import change_acls, list_acls

app = JsonApp("access rules")

_PLACE_LENGTH_MAX = 2 * ACL_PRINCIPAL_LENGTH_MAX
_Text = Annotated[str | None, Query(max_length=ACL_PRINCIPAL_LENGTH_MAX)]


@app.operation("GET /v1/acls", "listAcls", "List access rules", parameters=(*PAGED, "principal", "resource"))
def list_all(
    limit: Annotated[Digits, Query(ge=1, le=ACL_LIST_MAX)] = ACL_LIST_MAX,
    after: Annotated[str, Query(max_length=_PLACE_LENGTH_MAX)] = "",
    principal: _Text = None,
    resource: _Text = None,
) -> AclList:
    """List the access rules by resource, `limit` at a time, from behind `after`.

    If you may not describe the service, you get the rules about you.
    """
    if principal is not None:
        principal = str(parse_principal_pattern(_full(principal)))
    rules, next_after = list_acls(
        instance_of(app), limit, after, access=caller_of(app), principal=principal, resource=resource
    )
    page, next_after = fitting_page([rule_answer(rule) for rule in rules], next_after, lambda last: rules[last].place)
    return {"acls": page, "next_after": next_after}


@app.operation("POST /v1/acls", "changeAcls", "Add and remove access rules")
def change(request: ChangeAcls) -> AclChanges:
    """Add some access rules and remove others, all or none. Other instances decide by them within 10 s."""
    if not 1 <= len(request.add) + len(request.remove) <= ACL_CHANGES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.add) + len(request.remove)} rules in one change: give 1 to {ACL_CHANGES_MAX}",
            limit=ACL_CHANGES_MAX,
        )
    done = change_acls(
        instance_of(app), [_new_rule(each) for each in request.add], [_rule(each) for each in request.remove]
    )
    return {
        "added": [rule_answer(rule) for rule in sorted(done.added, key=lambda rule: rule.place)],
        "removed": [rule_answer(rule) for rule in sorted(done.removed, key=lambda rule: rule.place)],
    }


@app.operation(
    "DELETE /v1/acls",
    "deleteAcl",
    "Remove an access rule",
    parameters=("principal", "operation", "resource", "permission"),
)
def delete(
    principal: Annotated[str, Query()],
    operation: Annotated[str, Query()],
    resource: Annotated[str, Query()],
    permission: Annotated[str, Query()] = ALLOW,
) -> AclChanges:
    """Remove one access rule. A rule that is not there is no error."""
    rule = parse_rule(_full(principal), operation, resource, permission)
    done = change_acls(instance_of(app), [], [rule])
    return {"added": [], "removed": [rule_answer(each) for each in done.removed]}


@app.operation("POST /v1/acls/check", "checkAcl", "Ask what the access rules decide")
def check(request: CheckAcl) -> AclDecision:
    """Tell whether a principal has a right, and by what. Without `principal`, it is you."""
    instance, caller = instance_of(app), caller_of(app)
    kind, name = parse_resource(request.resource)
    right = Right(operation=parse_operation(request.operation), kind=kind, name=name)
    access = instance.acl_cache.newest_access_of(
        caller.principal if request.principal is None else _named(request, caller)
    )
    decision = access.rules.decide(right)
    return {
        "principal": access.principal.name,
        "operation": right.operation.value,
        "resource": right.resource,
        "is_allowed": decision.is_allowed,
        "reason": decision.reason.value,
    }


def _named(request: CheckAcl, caller: Access) -> Principal:
    """The principal of the request. Only a caller who may describe the service asks for another than itself."""
    pattern = parse_principal_pattern(_full(request.principal or ""))
    if pattern.is_prefix:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"principal={request.principal!r:.100}: name one principal")
    if pattern.text != caller.principal.name:
        caller.require(Operation.DESCRIBE, Kind.SERVICE, "")
    return named_principal(pattern.text)


def _new_rule(given: AclRuleJson) -> Rule:
    """The rule, if it can be about a caller. Raises INVALID_REQUEST."""
    trusted_principal(given.principal, instance_of(app).acl_cache.settings.tokens)
    return _rule(given)


def _rule(given: AclRuleJson) -> Rule:
    """The rule. Raises INVALID_REQUEST that names the part, its value and the way out."""
    return parse_rule(_full(given.principal), given.operation, given.resource, given.permission)


def _full(principal: str) -> str:
    return full_principal(principal, instance_of(app).acl_cache.settings.tokens)


serve = serve_with(app)
