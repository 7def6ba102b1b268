import pytest

from penstock.apply.stage import Noun, Ownership
from penstock.apply.stage_file import patterns_of_names, patterns_of_principals
from penstock_core.acls.rule import parse_rule

ROLE = "arn:aws:iam::111122223333:role"
SHOP = Ownership(names=patterns_of_names(["shop.*", "till"]), principals=patterns_of_principals([f"{ROLE}/shop-*"]))
ALL = Ownership(names=patterns_of_names(["*"]), principals=patterns_of_principals(["*"]))


@pytest.mark.parametrize(
    ("noun", "name", "is_owned"),
    [
        (Noun.TOPIC, "shop.orders", True),
        (Noun.SHARE_GROUP, "till", True),
        (Noun.TOPIC, "till2", False),
        (Noun.TOPIC, "shop", False),
        (Noun.QUOTA, "topic shop.orders", True),
        (Noun.QUOTA, f"principal {ROLE}/shop-api", True),
        (Noun.QUOTA, f"principal {ROLE}/shop-a*", True),
        (Noun.QUOTA, f"principal {ROLE}/sho*", False),
        (Noun.QUOTA, "principal *", False),
        (Noun.QUOTA, "topic *", False),
    ],
)
def test_file_owns_what_its_patterns_cover(noun: Noun, name: str, is_owned: bool) -> None:
    assert SHOP.has(noun, name) is is_owned
    assert ALL.has(noun, name)


@pytest.mark.parametrize(
    ("resource", "is_owned"),
    [
        ("topic:shop.orders", True),
        ("group:shop.*", True),
        ("topic:till", True),
        ("topic:till*", False),
        ("topic:sh*", False),
        ("topic:*", False),
        ("service", False),
        ("*", False),
    ],
)
def test_rule_is_of_the_owner_of_all_its_resources(resource: str, is_owned: bool) -> None:
    rule = parse_rule(f"{ROLE}/other", "read", resource)
    assert SHOP.has_rule(rule) is is_owned
    assert ALL.has_rule(rule)
