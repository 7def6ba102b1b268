from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from penstock.apply.plan import ChangeAction, StagePlan, plan
from penstock.apply.stage import Noun, Ownership, Settings, Stage
from penstock.apply.stage_file import StageFile, patterns_of_names, patterns_of_principals
from penstock_core.acls.rule import Rule, parse_rule
from penstock_core.groups.group import GroupConfig
from penstock_core.log.topic import TopicConfig
from penstock_core.push.subscription import new_subscription_config
from penstock_core.share.share_group import new_share_group_config

ROLE = "arn:aws:iam::111122223333:role/shop"
OWNED = Ownership(names=patterns_of_names(["shop.*"]), principals=patterns_of_principals([ROLE]))
Things = Mapping[Noun, Mapping[str, Settings]]


def topic(partitions: int = 1, **config: Any) -> Settings:
    return {**asdict(TopicConfig(**config)), "partitions": partitions}


def share_group(*topics: str, **config: Any) -> Settings:
    return {"topics": [*topics], **asdict(new_share_group_config(config))}


def subscription(*topics: str, target: Settings, **config: Any) -> Settings:
    return {"topics": [*topics], "target": target, **asdict(new_subscription_config(config))}


def planned(
    wanted: Things, present: Things, *, rules: tuple[set[Rule], set[Rule]] | None = None, prune: bool = False
) -> StagePlan:
    of_file, of_stage = (None, None) if rules is None else map(frozenset, rules)
    file = StageFile(path="f.yaml", stage=Stage(things=wanted, rules=of_file), owned=OWNED, lines={})
    return plan(file, Stage(things=present, rules=of_stage), prune=prune)


def texts(found: StagePlan) -> list[str]:
    assert found.mistakes == ()
    return [each.text() for each in found.changes]


def test_nothing_changes_when_all_is_as_wanted() -> None:
    wanted: Things = {
        Noun.TOPIC: {"shop.a": {"partitions": 2}},
        Noun.GROUP: {"shop.g": {}},
        Noun.SHARE_GROUP: {"shop.s": {"topics": ["shop.a", "b"]}},
        Noun.SUBSCRIPTION: {"shop.p": {"topics": ["shop.a"], "target": {"topic": "b"}}},
        Noun.QUOTA: {"topic shop.a": {"fetch_bytes_per_s": 1}},
    }
    present: Things = {
        Noun.TOPIC: {"shop.a": topic(2), "b": topic()},
        Noun.GROUP: {"shop.g": asdict(GroupConfig())},
        Noun.SHARE_GROUP: {"shop.s": share_group("b", "shop.a")},
        Noun.SUBSCRIPTION: {"shop.p": subscription("shop.a", target={"topic": "b"})},
        Noun.QUOTA: {"topic shop.a": {"fetch_bytes_per_s": 1}},
    }
    rule = parse_rule(ROLE, "read", "topic:shop.a")
    found = planned(wanted, present, rules=({rule}, {rule}), prune=True)
    assert (texts(found), found.unchanged, found.is_destructive) == ([], 6, False)


def test_other_order_of_listed_topics_is_a_change() -> None:
    wanted: Things = {Noun.SHARE_GROUP: {"shop.s": {"topics": ["shop.a", "b"], "topic_order": "listed"}}}
    present: Things = {
        Noun.TOPIC: {"shop.a": topic(2), "b": topic()},
        Noun.SHARE_GROUP: {"shop.s": share_group("b", "shop.a", topic_order="listed")},
    }
    [change] = planned(wanted, present).changes
    assert (change.before, change.after) == ({"topics": ["b", "shop.a"]}, {"topics": ["shop.a", "b"]})
    as_wanted = {"shop.s": share_group("shop.a", "b", topic_order="listed")}
    assert texts(planned(wanted, {**present, Noun.SHARE_GROUP: as_wanted})) == []


def test_missing_things_are_created() -> None:
    found = planned(
        {Noun.TOPIC: {"shop.a": {"retention_ms": 86_400_000}}, Noun.GROUP: {"shop.g": {}}},
        {},
        rules=({parse_rule(ROLE, "read", "topic:shop.a")}, set()),
    )
    assert texts(found) == [
        "+ topic shop.a: partitions=1 retention_ms=1d",
        "+ group shop.g",
        f"+ rule topic:shop.a read allow {ROLE}",
    ]
    assert found.changes[0].to_json()["after"] == {"partitions": 1, "retention_ms": 86_400_000}


def test_setting_that_the_file_leaves_out_stays_and_null_is_its_default() -> None:
    present: Things = {
        Noun.TOPIC: {"a": topic(5, retention_ms=60_000, index_tags=True), "d": topic()},
        Noun.GROUP: {"g": asdict(GroupConfig(assignor="range"))},
        Noun.SHARE_GROUP: {"s": share_group("a", dead_letter_topic="d", deliveries_max=2, lock_ms=9_000)},
        Noun.SUBSCRIPTION: {"p": subscription("a", target={"lambda": "x"}, dead_letter_topic="d", attempts_max=2)},
    }
    left_out: Things = {
        Noun.TOPIC: {"a": {}},
        Noun.GROUP: {"g": {}},
        Noun.SHARE_GROUP: {"s": {"topics": ["a"]}},
        Noun.SUBSCRIPTION: {"p": {"topics": ["a"], "target": {"lambda": "x"}}},
    }
    assert texts(planned(left_out, present)) == []
    null: Things = {
        Noun.TOPIC: {"a": {"index_tags": None, "retention_ms": None}},
        Noun.GROUP: {"g": {"assignor": None}},
        Noun.SHARE_GROUP: {"s": {"topics": ["a"], "deliveries_max": None, "ordering": None}},
        Noun.SUBSCRIPTION: {"p": {"topics": ["a"], "target": {"lambda": "x"}, "attempts_max": None}},
    }
    found = planned(null, present)
    assert texts(found) == [
        "~ topic a: index_tags: true -> false  retention_ms: 1m -> 14d",
        "~ group g: assignor: range -> sticky",
        "~ share group s: deliveries_max: 2 -> 5",
        "~ subscription p: attempts_max: 2 -> 5",
    ]
    assert not found.is_destructive


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ({"retention_ms": -1}, {"retention_ms": None}, "what is beyond the lower retention_ms goes, for ever"),
        ({"retention_ms": 120_000}, {"retention_ms": 60_000}, "what is beyond the lower retention_ms goes, for ever"),
        ({"retention_ms": 60_000}, {"retention_ms": -1}, ""),
        (
            {"retention_bytes": -1},
            {"retention_bytes": 10**9},
            "what is beyond the lower retention_bytes goes, for ever",
        ),
        ({"delete_retention_ms": 90_000}, {"delete_retention_ms": 60_000}, "the lower delete_retention_ms goes"),
        ({}, {"cleanup_policy": "compact"}, "records go by another policy"),
        ({"cleanup_policy": "compact"}, {"cleanup_policy": "compact,delete"}, "records go by another policy"),
        ({}, {"index_tags": True}, ""),
    ],
)
def test_change_of_a_topic_that_removes_records_is_destructive(before: Settings, after: Settings, note: str) -> None:
    found = planned({Noun.TOPIC: {"a": after}}, {Noun.TOPIC: {"a": topic(**before)}})
    [change] = found.changes
    assert (note in change.note, found.is_destructive, change.to_json()["is_destructive"]) == (True, *[bool(note)] * 2)


def test_offsets_and_dead_letters_that_go_are_destructive() -> None:
    known = asdict(GroupConfig())
    group = {"offsets_retention_ms": known["offsets_retention_ms"] - 1_000}
    found = planned({Noun.GROUP: {"g": group}}, {Noun.GROUP: {"g": known}})
    assert found.is_destructive
    present: Things = {
        Noun.TOPIC: {"a": topic(), "d": topic(), "e": topic()},
        Noun.SHARE_GROUP: {"s": share_group("a", dead_letter_topic="d")},
        Noun.SUBSCRIPTION: {"p": subscription("a", target={"lambda": "x"}, dead_letter_topic="d")},
    }
    for letters, is_destructive in ((None, True), ("e", False)):
        share = planned({Noun.SHARE_GROUP: {"s": {"topics": ["a"], "dead_letter_topic": letters}}}, present)
        of_push = {"topics": ["a"], "target": {"lambda": "x"}, "dead_letter_topic": letters}
        push = planned({Noun.SUBSCRIPTION: {"p": of_push}}, present)
        assert (share.is_destructive, push.is_destructive) == (is_destructive, is_destructive)
        assert ("records that fail no longer go to d" in share.changes[0].text()) is is_destructive


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"filter": {"kind": ["x"]}}, "records that do not match the filter are passed over, for ever"),
        ({"filter": {"kind": ["a"]}}, ""),
        ({"filter": None}, ""),
        ({"topics": ["a"]}, "what waits in b, c waits on, until retention takes it"),
        ({"topics": ["a", "b", "c", "d"]}, ""),
    ],
)
def test_records_that_are_not_delivered_any_more_are_a_loss(given: Settings, told: str) -> None:
    config = {"filter": {"kind": ["a"]}}
    target = {"lambda": "x"}
    present: Things = {
        Noun.TOPIC: {name: topic() for name in "abcd"},
        Noun.SHARE_GROUP: {"s": share_group("a", "b", "c", **config)},
        Noun.SUBSCRIPTION: {"p": subscription("a", "b", "c", target=target, **config)},
    }
    of_both = {"topics": ["c", "b", "a"], **given}
    share = planned({Noun.SHARE_GROUP: {"s": of_both}}, present)
    push = planned({Noun.SUBSCRIPTION: {"p": {"target": target, **of_both}}}, present)
    for found in (share, push):
        assert (found.mistakes, found.is_destructive) == ((), bool(told))
        assert [each.note for each in found.changes if each.note] == [told] * bool(told)


def test_first_filter_is_a_loss() -> None:
    present: Things = {Noun.TOPIC: {"a": topic()}, Noun.SHARE_GROUP: {"s": share_group("a")}}
    assert planned({Noun.SHARE_GROUP: {"s": {"topics": ["a"], "filter": {"k": ["x"]}}}}, present).is_destructive


def test_settings_that_do_not_go_together_with_those_of_the_stage_are_a_mistake() -> None:
    present = {Noun.TOPIC: {"a": topic(ordering_on_change="wait")}}
    found = planned({Noun.TOPIC: {"a": {"cleanup_policy": "compact"}}}, present)
    assert found.mistakes[0].startswith("f.yaml:1: topics.a: cleanup_policy='compact' with ordering_on_change='wait'")


def test_created_thing_shows_the_default_that_null_means() -> None:
    wanted = {Noun.SHARE_GROUP: {"s": {"topics": ["a"], "dead_letter_topic": "d", "deliveries_max": None}}}
    found = planned(wanted, {Noun.TOPIC: {"a": topic(), "d": topic()}})
    assert texts(found) == ["+ share group s: topics=a dead_letter_topic=d deliveries_max=5"]


def test_topics_in_another_order_or_twice_are_no_change() -> None:
    present: Things = {Noun.TOPIC: {"a": topic(), "b": topic()}, Noun.SHARE_GROUP: {"s": share_group("a", "b")}}
    assert texts(planned({Noun.SHARE_GROUP: {"s": {"topics": ["b", "a", "b"]}}}, present)) == []


def test_quota_loses_the_limit_that_the_file_leaves_out() -> None:
    found = planned(
        {Noun.QUOTA: {"topic a": {"fetch_bytes_per_s": 2}}},
        {Noun.QUOTA: {"topic a": {"fetch_bytes_per_s": 1, "produce_bytes_per_s": 1}}},
    )
    assert texts(found) == ["~ quota topic a: fetch_bytes_per_s: 1 -> 2  produce_bytes_per_s: 1 -> none"]
    assert found.changes[0].settings == {"fetch_bytes_per_s": 2}


@pytest.mark.parametrize(("partitions", "note", "drains"), [(5, "keys map", False), (1, "drain", True)])
def test_partitions_change_with_a_note(partitions: int, note: str, drains: bool) -> None:
    found = planned({Noun.TOPIC: {"a": {"partitions": partitions}}}, {Noun.TOPIC: {"a": topic(3)}})
    assert found.changes[0].action is ChangeAction.CHANGE
    assert note in found.changes[0].note
    assert found.is_destructive is drains


def test_what_is_fixed_stays_or_is_refused() -> None:
    present = {Noun.TOPIC: {"a": topic()}, Noun.SHARE_GROUP: {"s": share_group("a", ordering="key", start="latest")}}
    assert texts(planned({Noun.SHARE_GROUP: {"s": {"topics": ["a"]}}}, present)) == []
    refused = planned({Noun.SHARE_GROUP: {"s": {"topics": ["a"], "ordering": "none"}}}, present)
    assert (
        "f.yaml:1: share_groups.s: ordering='none': a share group keeps its ordering (key) for ever"
        in refused.mistakes[0]
    )


def test_unknown_topic_is_a_mistake() -> None:
    found = planned(
        {Noun.SHARE_GROUP: {"s": {"topics": ["a"], "dead_letter_topic": "b"}}}, {Noun.TOPIC: {"a": topic()}}
    )
    assert found.mistakes == (
        "f.yaml:1: share_groups.s.dead_letter_topic: the topic 'b' is neither in the file nor in the stage",
    )


def test_reader_of_a_topic_that_is_made_anew_is_bound_again() -> None:
    wanted: Things = {Noun.TOPIC: {"a": {}}, Noun.SHARE_GROUP: {"s": {"topics": ["a"]}}}
    found = planned(wanted, {Noun.SHARE_GROUP: {"s": share_group("a")}})
    assert texts(found) == ["+ topic a: partitions=1", "~ share group s  (it reads the new a)"]


def test_secret_makes_no_change_and_is_not_shown() -> None:
    target = {"https": {"url": "https://a.example/", "secret": "whsec_x"}}
    wanted = {Noun.SUBSCRIPTION: {"s": {"topics": ["a"], "target": target}}}
    present = {Noun.TOPIC: {"a": topic()}}
    created = planned(wanted, present)
    assert texts(created) == ["+ subscription s: topics=a target=https:https://a.example/"]
    assert "whsec" not in str(created.changes[0].to_json())
    known = subscription("a", target={"https": {"url": "https://a.example/"}})
    left = planned(wanted, {**present, Noun.SUBSCRIPTION: {"s": known}})
    assert (texts(left), left.secrets) == ([], 1)


def test_secret_is_sent_again_when_asked() -> None:
    endpoint = {"url": "https://a.example/"}
    known = subscription("a", target={"https": endpoint})
    present = {Noun.TOPIC: {"a": topic()}, Noun.SUBSCRIPTION: {"s": known, "t": known}}
    target = {"https": {**endpoint, "secret": "whsec_x"}}
    wanted = {"s": {"topics": ["a"], "target": target}, "t": {"topics": ["a"], "target": {"https": endpoint}}}
    file = StageFile(path="f", stage=Stage(things={Noun.SUBSCRIPTION: wanted}), owned=None, lines={})
    found = plan(file, Stage(things=present), prune=False, send_secrets=True)
    where = "https:https://a.example/"
    assert texts(found) == [f"~ subscription s: target: {where} -> {where}  (its secret is sent)"]
    assert (found.changes[0].after, found.secrets, found.is_destructive) == ({"target": target}, 0, False)
    assert "whsec" not in str(found.changes[0].to_json())


def test_prune_deletes_what_is_owned_and_not_wanted() -> None:
    kept, gone, foreign = (
        parse_rule(ROLE, "read", each) for each in ("topic:shop.a", "topic:shop.old", "topic:till.*")
    )
    present: Things = {
        Noun.TOPIC: {"shop.a": topic(), "shop.old": topic(), "till.a": topic(), "_audit": topic()},
        Noun.SHARE_GROUP: {"shop.old": share_group("shop.old"), "till.s": share_group("till.a")},
        Noun.SUBSCRIPTION: {},
        Noun.QUOTA: {f"principal {ROLE}": {"topics_max": 1}, "principal *": {"topics_max": 1}},
    }
    wanted: Things = {Noun.TOPIC: {"shop.a": {}}, Noun.SHARE_GROUP: {}, Noun.QUOTA: {}}
    found = planned(wanted, present, rules=({kept}, {kept, gone, foreign}), prune=True)
    assert texts(found) == [
        "- share group shop.old",
        f"- quota principal {ROLE}",
        "- topic shop.old  (and all its records)",
        f"- rule topic:shop.old read allow {ROLE}",
    ]
    assert found.is_destructive
    assert texts(planned(wanted, present, rules=({kept}, {kept, gone, foreign}))) == []


def test_prune_refuses_a_section_without_entries() -> None:
    file = StageFile(path="f", stage=Stage(things={Noun.TOPIC: {}}), owned=OWNED, lines={}, empty={"topics": 2})
    present = Stage(things={Noun.TOPIC: {"shop.a": topic()}})
    [mistake] = plan(file, present, prune=True).mistakes
    assert mistake.startswith("f:2: topics: it has no entry, and --prune would delete all topics")
    assert mistake.endswith("write {} if you mean that")
    assert plan(file, present, prune=False).mistakes == ()


def test_rules_on_the_service_are_deleted_last() -> None:
    rules = {parse_rule(ROLE, "all", each) for each in ("service", "*", "topic:shop.a", "group:shop.a")}
    everything = Ownership(names=patterns_of_names(["*"]))
    file = StageFile(path="f", stage=Stage(rules=frozenset()), owned=everything, lines={})
    present = Stage(rules=frozenset(rules))
    found = plan(file, present, prune=True)
    last = [each.rule.resource_text for each in found.changes if each.rule]
    assert last == ["group:shop.a", "topic:shop.a", "*", "service"]
    assert found.rules_after(present) == frozenset()
    kept = StageFile(path="f", stage=Stage(rules=frozenset({parse_rule(ROLE, "read", "*")})), owned=None, lines={})
    assert plan(kept, present, prune=False).rules_after(present) == {*rules, parse_rule(ROLE, "read", "*")}


def test_prune_leaves_sections_that_the_file_does_not_have() -> None:
    present: Things = {Noun.TOPIC: {"shop.a": topic()}, Noun.SHARE_GROUP: {"shop.s": share_group("shop.a")}}
    assert texts(planned({Noun.TOPIC: {"shop.a": {}}}, present, prune=True)) == []


def test_prune_refuses_the_dead_letter_topic_that_the_file_leaves_out() -> None:
    letters = {"shop.s": share_group("shop.a", dead_letter_topic="shop.d")}
    present: Things = {Noun.TOPIC: {"shop.a": topic(), "shop.d": topic()}, Noun.SHARE_GROUP: letters}
    wanted: Things = {Noun.TOPIC: {"shop.a": {}}, Noun.SHARE_GROUP: {"shop.s": {"topics": ["shop.a"]}}}
    assert "share group shop.s uses it (dead_letter_topic)" in planned(wanted, present, prune=True).mistakes[0]


def test_prune_refuses_a_topic_that_others_use() -> None:
    present: Things = {
        Noun.TOPIC: {"shop.a": topic()},
        Noun.SHARE_GROUP: {"till.s": share_group("till.a", dead_letter_topic="shop.a")},
        Noun.SUBSCRIPTION: {"till.p": subscription("till.a", target={"topic": "shop.a"})},
    }
    found = planned({Noun.TOPIC: {}}, present, prune=True)
    assert [each.split("but ")[1] for each in found.mistakes] == [
        "share group till.s uses it (dead_letter_topic): change that first",
        "subscription till.p uses it (target): change that first",
    ]
