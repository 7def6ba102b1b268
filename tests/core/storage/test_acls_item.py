import json
import secrets
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.acls.rule import Rule, parse_rule
from penstock_core.acls.rule_set import RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_DECODED_BYTES_MAX, ACL_PRINCIPAL_LENGTH_MAX, ACL_RULES_MAX, NAME_LENGTH_MAX
from penstock_core.storage.acls_item import (
    acl_mark_key,
    acl_owners_item,
    acl_rules_item,
    acl_writes,
    parse_acl_mark,
    parse_acl_owners,
    parse_acl_rules,
)

_RULES = st.builds(
    parse_rule,
    st.sampled_from(["*", "arn:aws:iam::1:role/é*", "jwt:https://a#b"]),
    st.sampled_from(["all", "read", "create"]),
    st.sampled_from(["*", "service", "topic:*", "group:x", "share_group:x*"]),
    st.sampled_from(["allow", "deny"]),
)
RULE = parse_rule("*", "read", "topic:a*", "deny")


@given(st.frozensets(_RULES, max_size=9))
def test_rules_survive_a_round_trip(rules: frozenset[Rule]) -> None:
    book = RuleBook(revision="00ff", rules=rules)
    assert parse_acl_rules(acl_rules_item(book)) == book


def test_rules_item_is_what_is_stored_today() -> None:
    item = acl_rules_item(RuleBook(revision="00ff", rules=frozenset({RULE})))
    assert {name: item[name] for name in ("pk", "sk", "revision")} == {
        "pk": {"S": "#acls"},
        "sk": {"S": "rules"},
        "revision": {"S": "00ff"},
    }
    assert zlib.decompress(item["rules"]["B"]) == b'[["*","read","topic:a*","deny"]]'


@given(st.dictionaries(_RULES, st.frozensets(st.sampled_from(["", "a.1", "b.2"]), min_size=1), max_size=9))
def test_owners_survive_a_round_trip(owners: dict[Rule, frozenset[str]]) -> None:
    assert parse_acl_owners(acl_owners_item(owners)) == owners


def test_owners_item_is_what_is_stored_today() -> None:
    item = acl_owners_item({RULE: frozenset({"b", "a"})})
    assert (item["pk"], item["sk"]) == ({"S": "#acls"}, {"S": "owners"})
    row = '[["*","read","topic:a*","deny"]]'
    assert zlib.decompress(item["owners"]["B"]).decode() == f'{{"a":{row},"b":{row}}}'


@pytest.mark.parametrize("content", [b"[]x", b"[]", b'{"a":7}', b'{"a":[["*","own","topic:a","deny"]]}'])
def test_owners_of_a_later_release_are_refused(content: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_acl_owners({"owners": {"B": zlib.compress(content)}})
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


def test_bytes_of_another_compressor_are_read() -> None:
    stored = zlib.compress(json.dumps([["*", "read", "topic:a*", "deny"]]).encode(), 0)
    assert parse_acl_rules({"revision": {"S": "1"}, "rules": {"B": stored}}).rules == {RULE}


def test_both_items_are_written_under_the_same_condition() -> None:
    first, mark = acl_writes("", RuleBook(revision="01"))
    assert first.condition == mark.condition == "attribute_not_exists(pk)"
    first, mark = acl_writes("01", RuleBook(revision="02"))
    assert first.condition == mark.condition == "revision = :seen"
    assert first.values[":seen"] == mark.values[":seen"] == {"S": "01"}
    assert parse_acl_mark({**acl_mark_key(), "revision": {"S": "02"}}) == "02"
    *_, owners = acl_writes("01", RuleBook(revision="02"), {})
    assert owners.condition == "attribute_not_exists(format_version)"


@pytest.mark.parametrize(
    "rows",
    [b"[]x", b"{", b'[["*","own","topic:a","deny"]]', b'[["*","read"]]', b"7", b"[7]", b'[[7,"read","*","deny"]]'],
)
def test_rule_of_a_later_release_is_refused_because_it_may_deny(rows: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_acl_rules({"revision": {"S": "1"}, "rules": {"B": zlib.compress(rows)}})
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


def test_bytes_that_are_no_rules_or_too_many_are_refused() -> None:
    for data in (b"garbage", zlib.compress(b" " * (ACL_DECODED_BYTES_MAX + 1))):
        with pytest.raises(PenstockError) as caught:
            parse_acl_rules({"revision": {"S": "1"}, "rules": {"B": data}})
        assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


def test_rules_that_do_not_fit_into_an_item_are_refused() -> None:
    rules = frozenset(
        parse_rule(
            f"arn:{secrets.token_hex(ACL_PRINCIPAL_LENGTH_MAX // 2 - 2)}", "read", f"topic:{'a' * NAME_LENGTH_MAX}"
        )
        for _ in range(ACL_RULES_MAX)
    )
    with pytest.raises(PenstockError) as caught:
        acl_rules_item(RuleBook(revision="1", rules=rules))
    assert caught.value.code is ErrorCode.TOO_MANY_ACLS


def test_the_most_rules_of_an_ordinary_stage_fit_into_an_item() -> None:
    rules = frozenset(
        parse_rule(f"arn:aws:iam::111122223333:role/{secrets.token_hex(8)}", "read", f"topic:{secrets.token_hex(8)}")
        for _ in range(ACL_RULES_MAX)
    )
    acl_rules_item(RuleBook(revision="1", rules=rules))
    acl_owners_item({rule: frozenset({f"{secrets.token_hex(8)}.{secrets.token_hex(8)}"}) for rule in rules})


def test_owners_that_could_not_be_read_again_are_refused_although_they_pack_small() -> None:
    rules = [parse_rule(f"arn:aws:iam::1:role/{number:0>400}", "read", "topic:a") for number in range(100)]
    names = [f"{number:0>16}.{number:0>16}" for number in range(200)]
    fits = acl_owners_item({rule: frozenset(names[:150]) for rule in rules})
    assert len(parse_acl_owners(fits)) == 100
    with pytest.raises(PenstockError) as caught:
        acl_owners_item({rule: frozenset(names) for rule in rules})
    assert caught.value.code is ErrorCode.TOO_MANY_ACLS
    assert caught.value.facts == {"limit": ACL_DECODED_BYTES_MAX}
    assert caught.value.message.startswith("the rules that 200 resources of templates declare take 9")
    assert f"bytes as text: {ACL_DECODED_BYTES_MAX} at most. Declare a rule in one stack" in caught.value.message
