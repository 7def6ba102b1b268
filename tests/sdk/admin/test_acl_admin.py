"""Access rules through Admin and AsyncAdmin, against the service in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AccessRule, InvalidError
from penstock.testing import MemoryPenstock

Call = Callable[..., Any]
ADA = "arn:aws:iam::111122223333:role/ada"
READ = AccessRule(principal=ADA, operation="read", resource="topic:orders")
DENY = AccessRule(principal="*", operation="write", resource="topic:*", permission="deny")


@pytest.fixture(params=["Admin", "AsyncAdmin"])
def call(request: pytest.FixtureRequest, service: MemoryPenstock) -> Call:
    """Calls a method of the admin client by its name."""
    if request.param == "Admin":
        return lambda method, *args, **kwargs: getattr(service.admin(), method)(*args, **kwargs)

    def call_async(method: str, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            async with service.async_admin() as admin:
                return await getattr(admin, method)(*args, **kwargs)

        return asyncio.run(run())

    return call_async


def test_rules_are_added_listed_checked_and_removed(call: Call) -> None:
    assert call("change_acls", [READ, DENY]).added == (DENY, READ)
    assert call("change_acls", [READ]).added == ()
    assert call("list_acls") == [DENY, READ]
    assert call("list_acls", principal=ADA) == [READ]
    assert call("list_acls", resource="topic:*") == [DENY]
    allowed = call("check_acl", "read", "topic:orders", principal=ADA)
    assert (allowed.is_allowed, allowed.reason) == (True, "an allow rule")
    denied = call("check_acl", "write", "topic:orders", principal=ADA)
    assert (denied.is_allowed, denied.reason) == (False, "a deny rule")
    assert call("change_acls", remove=[READ, DENY]).removed == (DENY, READ)
    assert call("list_acls") == []


def test_bad_rule_is_refused_before_anything_is_sent(call: Call) -> None:
    with pytest.raises(InvalidError, match="principal='ada': give an IAM ARN"):
        call("change_acls", [AccessRule(principal="ada", operation="read", resource="topic:a")])
    with pytest.raises(InvalidError, match="0 rules in one change"):
        call("change_acls")
    with pytest.raises(InvalidError, match="is no AccessRule"):
        call("change_acls", ["read"])
