from collections.abc import Iterator

import pytest

from penstock import Admin
from penstock.admin.caller_rights import hidden_users, loses_alter, visible_topic_users
from penstock.model.access import AccessRule
from penstock.model.push import TopicUser
from penstock.testing import MemoryPenstock
from penstock_core.acls.rule import parse_rule
from tests.sdk.http.faulty_transport import FaultyTransport, answer

ROLE = "arn:aws:iam::111122223333:role/team"
GROUPS = "you may not see all share groups: the right to describe 'share_group:*' shows them"
PUSH = "you may not see all subscriptions: the right to describe 'subscription:*' shows them"


@pytest.fixture
def closed() -> Iterator[MemoryPenstock]:
    with MemoryPenstock(denies_by_default=True) as service:
        yield service


def caller(service: MemoryPenstock, *rules: str) -> Admin:
    """The client of a role with these rules: `[deny ]OPERATION RESOURCE`."""
    add = []
    for rule in rules:
        operation, resource = rule.removeprefix("deny ").split()
        permission = "deny" if rule.startswith("deny ") else "allow"
        add.append(AccessRule(principal=ROLE, operation=operation, resource=resource, permission=permission))
    if add:
        Admin(transport=service.transport).change_acls(add=add)
    return Admin(transport=service.transport_as(ROLE))


@pytest.mark.parametrize(
    ("rules", "hidden"),
    [
        ((), [GROUPS, PUSH]),
        (("all topic:*",), [GROUPS, PUSH]),
        (("describe share_group:*",), [PUSH]),
        (("read share_group:*", "alter subscription:*"), []),
        (("create share_group:*", "delete subscription:*"), [GROUPS]),
        (("all *",), []),
        (("describe share_group:-*", "describe subscription:*"), [GROUPS]),
        (("all *", "deny describe share_group:billing.*"), [GROUPS]),
        (("all *", "deny read share_group:*", "deny all group:*"), []),
        (("all *", "deny all subscription:x"), [PUSH]),
        (("describe service",), [GROUPS, PUSH]),
    ],
)
def test_users_are_hidden_unless_rules_show_all(
    closed: MemoryPenstock, rules: tuple[str, ...], hidden: list[str]
) -> None:
    assert hidden_users(caller(closed, *rules)) == hidden


def test_rules_of_others_show_nothing(closed: MemoryPenstock) -> None:
    other = AccessRule(principal=f"{ROLE}-other", operation="all", resource="*")
    Admin(transport=closed.transport).change_acls(add=[other])
    assert hidden_users(caller(closed, "describe service")) == [GROUPS, PUSH]


@pytest.mark.parametrize(("rule", "hidden"), [("read topic:a", []), ("deny describe share_group:x", [GROUPS])])
def test_stage_that_allows_by_default_shows_what_no_rule_denies(
    service: MemoryPenstock, rule: str, hidden: list[str]
) -> None:
    assert hidden_users(caller(service, rule)) == hidden
    assert hidden_users(Admin(transport=service.transport)) == []


def test_visible_users_come_with_what_hides_others(closed: MemoryPenstock) -> None:
    closed.create_topic("a")
    Admin(transport=closed.transport).create_share_group("g", "a")
    found = visible_topic_users(caller(closed, "describe topic:a", "describe share_group:g"), ["a"])
    others = [f"others may use a: {why}" for why in (GROUPS, PUSH)]
    assert found == ([TopicUser(kind="share group", name="g", use="reads")], others)


def test_users_are_counted_for_who_may_delete_the_topic(closed: MemoryPenstock) -> None:
    for name in ("a", "b", "free"):
        closed.create_topic(name)
    admin = Admin(transport=closed.transport)
    for name in ("g", "seen", "h"):
        admin.create_share_group(name, "a")
    admin.put_subscription("copy", "a", {"topic": "b"})
    admin.put_subscription("late", "a", {"topic": "free"}, {"dead_letter_topic": "b"})
    admin.put_subscription("late", target={"topic": "b"}, config={"dead_letter_topic": None})
    team = caller(closed, "delete topic:*", "describe share_group:seen")
    assert visible_topic_users(team, ["a", "b", "free"]) == (
        [TopicUser(kind="share group", name="seen", use="reads")],
        [
            "a has users that you may not see: 2 share groups, 2 subscriptions",
            "b has users that you may not see: 2 subscriptions",
        ],
    )
    assert visible_topic_users(team, ["free"]) == ([], [])
    assert visible_topic_users(admin, ["a"])[1] == []


def test_earlier_service_counts_nothing_and_its_rules_tell(closed: MemoryPenstock) -> None:
    closed.create_topic("a")
    caller(closed, "delete topic:a")
    transport = FaultyTransport(closed.transport_as(ROLE))
    transport.faults["/v1/topics/a/users"] = [answer(404, b'{"message": "Not Found"}')]
    found = visible_topic_users(Admin(transport=transport), ["a"])
    assert found == ([], [f"others may use a: {why}" for why in (GROUPS, PUSH)])


@pytest.mark.parametrize(
    ("rules", "left", "is_lost"),
    [
        (("all *",), [], True),
        (("all *",), ["alter service"], False),
        (("alter service",), ["describe service"], True),
        (("describe service",), [], False),
    ],
)
def test_right_to_alter_is_lost_with_its_last_rule(
    closed: MemoryPenstock, rules: tuple[str, ...], left: list[str], is_lost: bool
) -> None:
    before = caller(closed, *rules).check_acl("alter", "service")
    assert loses_alter(before, [parse_rule(ROLE, *each.split()) for each in left]) is is_lost


def test_right_to_alter_by_default_is_lost_by_a_deny(service: MemoryPenstock) -> None:
    before = caller(service).check_acl("alter", "service")
    assert not loses_alter(before, [])
    assert loses_alter(before, [parse_rule("*", "alter", "service", "deny")])


def test_super_principal_loses_nothing(closed: MemoryPenstock) -> None:
    before = Admin(transport=closed.transport).check_acl("alter", "service")
    assert not loses_alter(before, [parse_rule("*", "all", "*", "deny")])
