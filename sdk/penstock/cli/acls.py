"""`penstock acls`: add, remove and list access rules, and check what they decide."""

import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from penstock.admin.admin import Admin
from penstock.cli.service import Service, service_command
from penstock.model.access import AccessChange, AccessRule
from penstock_core.acls.rule import ALL, ALLOW, DENY, Operation

_OPERATIONS = [each.value for each in Operation]
_DENIED = 1  # the exit code of a check that says no
_DENY = click.option("--deny", is_flag=True, help="A rule that denies: it wins over each rule that allows.")


@click.group("acls")
def acls() -> None:
    """Say which principal may use which topic, group or other resource."""


@acls.command()
@click.argument("principal")
@click.argument("operation", type=click.Choice([*_OPERATIONS, ALL]))
@click.argument("resources", nargs=-1, required=True)
@_DENY
@service_command
def add(service: Service, principal: str, operation: str, resources: tuple[str, ...], deny: bool) -> None:
    """Allow PRINCIPAL the OPERATION on RESOURCES, such as topic:orders, group:g*, service, or '*'.

    For example: penstock acls add arn:aws:iam::111122223333:role/shop write topic:orders
    """
    change = Admin(transport=service.transport).change_acls(add=_rules(principal, operation, resources, deny=deny))
    _say(service, change, change.added, "added", "no rule is new")


@acls.command()
@click.argument("principal")
@click.argument("operation", type=click.Choice([*_OPERATIONS, ALL]))
@click.argument("resources", nargs=-1, required=True)
@_DENY
@service_command
def remove(service: Service, principal: str, operation: str, resources: tuple[str, ...], deny: bool) -> None:
    """Remove the rules that `add` has made of the same arguments.

    For example: penstock acls remove arn:aws:iam::111122223333:role/shop write topic:orders
    """
    change = Admin(transport=service.transport).change_acls(remove=_rules(principal, operation, resources, deny=deny))
    _say(service, change, change.removed, "removed", "there is no such rule")


@acls.command("list")
@click.option("--principal", help="Only the rules with this very principal or pattern.")
@click.option("--resource", help="Only the rules with this very resource or pattern.")
@service_command
def list_rules(service: Service, principal: str | None, resource: str | None) -> None:
    """List the rules, by resource.

    For example: penstock acls list --resource topic:orders
    """
    found = Admin(transport=service.transport).list_acls(principal=principal, resource=resource)
    service.show(
        [asdict(each) for each in found],
        title="access rules",
        columns=("resource", "operation", "permission", "principal"),
        rows=[(each.resource, each.operation, each.permission, each.principal) for each in found],
    )


@acls.command()
@click.argument("principal")
@click.argument("operation", type=click.Choice(_OPERATIONS))
@click.argument("resource")
@service_command
def check(service: Service, principal: str, operation: str, resource: str) -> None:
    """Tell whether PRINCIPAL may do OPERATION on RESOURCE. `me` is you. Exits with 1 if not.

    For example: penstock acls check arn:aws:iam::111122223333:role/shop write topic:orders
    """
    asked = None if principal == "me" else principal
    found = Admin(transport=service.transport).check_acl(operation, resource, principal=asked)
    verdict = "may" if found.is_allowed else "may not"
    service.say(asdict(found), f"{found.principal} {verdict} {operation} {found.resource}: {found.reason}")
    if not found.is_allowed:
        sys.exit(_DENIED)


def _rules(principal: str, operation: str, resources: Sequence[str], *, deny: bool) -> list[AccessRule]:
    permission = DENY if deny else ALLOW
    return [
        AccessRule(principal=principal, operation=operation, resource=each, permission=permission) for each in resources
    ]


def _say(service: Service, change: AccessChange, rules: Sequence[AccessRule], done: str, nothing: str) -> None:
    lines = [f"{done}: {each.permission} {each.principal} {each.operation} {each.resource}" for each in rules]
    service.say(asdict(change), *(lines or [nothing]))
