from penstock_core.acls.rule import parse_rule
from penstock_service.acls.change_acls import change_acls, list_acls
from penstock_service.adapters.memory.service import memory_instance

RULES = [parse_rule("*", "read", f"topic:{name}") for name in "cab"]
OPS = parse_rule("arn:aws:iam::1:role/ops", "all", "*")


def test_rules_come_in_pages_by_place() -> None:
    instance = memory_instance()
    change_acls(instance, [*RULES, OPS], [])
    first, after = list_acls(instance, 3, "")
    assert after is not None
    second, end = list_acls(instance, 3, after)
    assert [rule.resource_text for rule in (*first, *second)] == ["*", "topic:a", "topic:b", "topic:c"]
    assert (len(first), end) == (3, None)


def test_list_of_one_principal_or_resource_has_only_its_rules() -> None:
    instance = memory_instance()
    change_acls(instance, [*RULES, OPS], [])
    assert list_acls(instance, 9, "", principal=str(OPS.principal)) == ([OPS], None)
    assert list_acls(instance, 9, "", resource="topic:a", principal="*") == ([RULES[1]], None)
    assert list_acls(instance, 9, "", resource="topic:a*") == ([], None)
