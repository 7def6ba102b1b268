from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from penstock.apply.settings import losses, unit_text, whole, whole_number, with_unit
from penstock.apply.stage import Noun, Ownership, Settings
from penstock.apply.stage_file import (
    MISTAKES_SHOWN,
    StageFile,
    patterns_of_names,
    patterns_of_principals,
    read_stage_file,
)
from penstock_core.acls.rule import parse_rule
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.topic import TopicConfig

ROLE = "arn:aws:iam::111122223333:role"


def read(folder: Path, text: str) -> StageFile:
    file = folder / "stage.yaml"
    file.write_text(text)
    return read_stage_file(file)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(PenstockError) as refused:
        read(folder, text)
    found: list[str] = refused.value.facts["mistakes"]
    return [each.removeprefix(f"{folder}/stage.yaml") for each in found]


def test_times_and_sizes_have_units(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        """
topics: {a: {retention_ms: 14d, max_batch_bytes: 512KiB, partitions: 3}, b: {retention_ms: forever}, c: }
subscriptions: {s: {topics: a, target: {topic: b}, retry: {age_ms_max: -1, patience_ms: 2m}}}
quotas: [{topic: a, produce_bytes_per_s: 10MB, stored_bytes_max: 1GiB}]
""",
    )
    things = file.stage.things
    assert things[Noun.TOPIC] == {
        "a": {"retention_ms": 1_209_600_000, "max_batch_bytes": 524_288, "partitions": 3},
        "b": {"retention_ms": -1},
        "c": {},
    }
    assert things[Noun.SUBSCRIPTION]["s"]["patience_ms"] == 120_000
    assert things[Noun.SUBSCRIPTION]["s"]["age_ms_max"] is None
    assert things[Noun.QUOTA] == {"topic a": {"produce_bytes_per_s": 10_000_000, "stored_bytes_max": 1_073_741_824}}
    assert file.stage.rules is None
    assert Noun.GROUP not in things
    assert file.place(Noun.TOPIC, "a") == f"{tmp_path}/stage.yaml:2"


def test_rules_are_the_product_of_their_lists(tmp_path: Path) -> None:
    entry = f"acls: [{{principal: ['{ROLE}/a', '{ROLE}/b'], operations: [read, write], resources: 'topic:x*'}}]"
    rules = read(tmp_path, entry).stage.rules
    assert rules is not None
    assert sorted(rule.place for rule in rules) == [
        f"topic:x* {operation} allow {ROLE}/{role}" for operation in ("read", "write") for role in ("a", "b")
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("topic: {}", ":1: the file: unknown field 'topic': known are owns, topics"),
        ("topics: [a]", ":1: topics: ['a'] is no mapping"),
        ("topics:\n  a:\n    partition: 3", ":3: topics.a.partition: unknown topic setting 'partition'"),
        ("topics:\n  a:\n    partitions: 0", ":3: topics.a.partitions: 0 partitions: a topic has 1 to"),
        ("topics: {a: {partitions: '3'}}", ":1: topics.a.partitions: '3' is no whole number"),
        ("topics: {a: {retention_ms: '14'}}", "'14': write a number with its unit, such as 90m"),
        ("topics: {a: {retention_ms: 1.5}}", "retention_ms=1.5: must be a whole number"),
        ("topics: {a b: {}}", ":1: topics.a b: topic name 'a b'"),
        ("topics: {_audit: {}}", "which only it makes"),
        ("groups: {g: {session_timeout_ms: 1s}}", "groups.g.session_timeout_ms: session_timeout_ms=1000: must be"),
        ("share_groups: {s: {lock_ms: 1m}}", ":1: share_groups.s: topics is missing"),
        ("share_groups: {s: {topics: []}}", "share_groups.s.topics: give one or more"),
        ("share_groups: {s: {topics: t, lock_ms: 1ms}}", "share_groups.s.lock_ms: lock_ms=1: must be"),
        ("subscriptions: {s: {topics: t}}", "subscriptions.s.target: is missing"),
        ("subscriptions: {s: {topics: t, target: {ftp: x}}}", "target with ['ftp']: give one of"),
        ("subscriptions: {s: {topics: t, target: {topic: u}, patience_ms: 1s}}", "s.patience_ms: belongs below retry"),
        ("subscriptions: {s: {topics: t, target: {topic: u}, retry: {x: 1}}}", "s.retry: unknown field 'x'"),
        ("subscriptions: {s: {topics: t, target: {https: {url: 'https://a.b', secret: x}}}}", "keep the secret out"),
        ("subscriptions: {s: {topics: t, target: {https: {url: 'https://a.b', secret_env: NO_SUCH}}}}", "no such var"),
        ("subscriptions: {s: {topics: t, target: {https: {url: 'nowhere'}}}}", "target.https.url='nowhere'"),
        ("schedules: {s: {cron: '* * * * *', topic: t}}", "schedules.s: record is missing"),
        ("schedules: {s: {cron: 5, topic: t, record: go}}", "schedules.s.cron: 5 is no text"),
        ("schedules: {s: {cron: x, topic: a b, record: go}}", "schedules.s.topic: topic name 'a b'"),
        ("schedules: {s: {cron: x, topic: t, record: go, enabled: maybe}}", "s.enabled: must be true or false"),
        ("schedules: {s: {cron: x, topic: t, record: {valeu: go}}}", "schedules.s.record: record has 'valeu'"),
        ("schedules: {s: {cron: x, topic: t, record: {value_base64: '?'}}}", "s.record: {'value_base64': '?'} is no"),
        ("schedules: {s: {cron: x, topic: t, record: 5}}", "schedules.s.record: record=5"),
        ("schedules: {s: {cron: x, topic: t, record: go, at: 9}}", "schedules.s: unknown field 'at'"),
        ("schedules: {a b: {cron: x, topic: t, record: go}}", "schedules.a b: schedule name 'a b'"),
        ("acls: [{principal: '*', operations: read}]", ":1: acls[0]: resources missing"),
        ("acls: [{principal: x, operations: read, resources: 'topic:a'}]", "acls[0]: principal='x': give an IAM ARN"),
        ("acls: [{principal: '*', operations: look, resources: 'topic:a'}]", "operation='look': must be one of"),
        ("acls: [{principal: 'jwt:ada', operations: read, resources: 'topic:a'}]", "give jwt:ISSUER#SUBJECT"),
        ("acls: [{principal: no, operations: read, resources: 'topic:a'}]", "acls[0].principal: False is no list"),
        ("quotas: [{produce_bytes_per_s: 1}]", "quotas[0]: give one of principal and topic"),
        ("quotas: [{topic: a}]", "quotas[0]: it has no limit"),
        ("quotas: [{topic: a, topics_max: 1}]", "limit 'topics_max': a quota of a topic has"),
        ("quotas: [{topic: a, fetch_bytes_per_s: 1}, {topic: a, fetch_bytes_per_s: 2}]", "topic a has a quota above"),
        ("quotas: [{topic: a, fetch_bytes_per_s: 1, shared: true}]", "quotas[0].topic: shared with name 'a'"),
        ("quotas: [{topic: a, fetch_bytes_per_s: 1, shared: yes!}]", "quotas[0].shared: 'yes!': must be true or false"),
        ("owns: {names: ['a*b']}", "owns.names: resource='topic:a*b'"),
        ("owns: {names: [a.*]}\ntopics:\n  b: {}", ":3: topic b: owns does not cover it"),
        ("owns: {names: [a.*]}\nquotas: [{principal: '*', fetch_bytes_per_s: 1}]", ":2: quota principal *: owns does"),
        (
            "owns: {names: [a.*]}\nacls: [{principal: '*', operations: read, resources: 'topic:*'}]",
            "rule on topic:*: owns",
        ),
        ("topics: [", ": it is no YAML"),
        ("topics: {a: {retention_ms: 24:00:00}}", ":1: '24:00:00' is no plain decimal number"),
        ("share_groups: {s: {topics: [a, b, a]}}", ":1: share_groups.s.topics: 'a' stands twice: name each topic once"),
        ("acls: [{principal: '*', operations: read, resources: 'topic:a', permission: may}]", "permission='may'"),
    ],
)
def test_mistake_is_told_with_line_and_field(tmp_path: Path, text: str, mistake: str) -> None:
    found = mistakes(tmp_path, text)
    assert mistake in found[0], found


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "topics:\n  a: {partitions: 0, lock_ms: 1}\n  b: {retention_ms: x}\n")
    assert len(found) == 3
    many = "topics:\n" + "".join(f"  t{n}: {{x: 1}}\n" for n in range(MISTAKES_SHOWN + 3))
    assert mistakes(tmp_path, many)[-1] == "and 3 more"


def test_mistake_of_a_rule_is_told_once(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        f"acls: [{{principal: ['*', '{ROLE}/a'], operations: [read, write, look], resources: ['topic:a', 'no']}}]",
    )
    assert [each.split("acls[0]: ")[1].split(":")[0] for each in found] == ["operation='look'", "resource='no'"]


def test_rules_are_bounded_before_they_are_made(tmp_path: Path) -> None:
    names = ", ".join(f"'topic:t{number}'" for number in range(2_000))
    roles = ", ".join(f"'{ROLE}/r{number}'" for number in range(2_000))
    entry = f"{{principal: [{roles}], operations: [read, write], resources: &r [{names}]}}"
    [mistake] = mistakes(tmp_path, f"acls:\n- {entry}\n")
    assert mistake == ":2: acls[0]: with it the file has 8,000,000 rules: a stage has 5,000 at most"
    many = f"{{principal: '*', operations: [read, write], resources: &r [{names}]}}"
    again = f"{{principal: '{ROLE}/a', operations: read, resources: *r}}"
    assert "acls[1]: with it the file has 6,000 rules" in mistakes(tmp_path, f"acls:\n- {many}\n- {again}\n")[0]


def test_sections_without_entries_are_noted(tmp_path: Path) -> None:
    file = read(tmp_path, "owns: {names: '*'}\ntopics:\n#  a:\ngroups: {}\nacls:\n")
    assert file.empty == {"topics": 2, "acls": 5}


def test_secret_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "whsec_" + "A" * 43 + "="
    monkeypatch.setenv("SHOP_SECRET", secret)
    target = "{https: {url: 'https://shop.example/in', secret_env: SHOP_SECRET}}"
    file = read(tmp_path, f"subscriptions: {{s: {{topics: t, target: {target}}}}}")
    assert file.stage.things[Noun.SUBSCRIPTION]["s"]["target"]["https"]["secret"] == secret


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


KNOWN = {**asdict(TopicConfig(retention_ms=60_000)), "partitions": 3}


def test_whole_takes_what_is_given_then_what_is_known_then_defaults() -> None:
    assert whole(Noun.TOPIC, {"index_tags": True}, KNOWN) == {
        **asdict(TopicConfig(retention_ms=60_000, index_tags=True)),
    }
    assert whole(Noun.TOPIC, {"partitions": 4}, None) == {**asdict(TopicConfig()), "partitions": 4}
    assert whole(Noun.TOPIC, {"retention_ms": None}, KNOWN) == asdict(TopicConfig())


def test_whole_leaves_out_what_the_service_does_not_tell_and_what_only_it_knows() -> None:
    older = {name: value for name, value in KNOWN.items() if name != "index_tags"}
    assert whole(Noun.TOPIC, {}, {**older, "newer": 1}).keys() == older.keys() - {"partitions"}
    assert whole(Noun.TOPIC, {"index_tags": False}, older)["index_tags"] is False


@pytest.mark.parametrize(
    ("noun", "given", "known"),
    [
        (Noun.TOPIC, {"cleanup_policy": "compact"}, {"ordering_on_change": "wait"}),
        (Noun.TOPIC, {"cleanup_policy": "compact", "ordering_on_change": "wait"}, None),
        (Noun.GROUP, {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 6_000}, None),
        (Noun.SHARE_GROUP, {"deliveries_max": 3}, None),
        (Noun.SUBSCRIPTION, {"age_ms_max": 60_000}, None),
        (Noun.SHARE_GROUP, {"ordering": "key"}, {"ordering": "none"}),
        (Noun.SUBSCRIPTION, {"mode": "ordered"}, {"mode": "parallel"}),
        (Noun.GROUP, {"heartbeat_interval_ms": 9_000}, {"session_timeout_ms": 9_000}),
    ],
)
def test_whole_refuses_what_does_not_go_together(noun: Noun, given: Settings, known: Settings | None) -> None:
    with pytest.raises(PenstockError) as refused:
        whole(noun, given, known)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_losses_ask_where_an_older_service_does_not_tell_the_retention() -> None:
    assert [*losses(["retention_bytes"], {}, {"retention_bytes": 10})]
    assert not [*losses(["retention_bytes"], {}, {"retention_bytes": -1})]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("retention_ms", -1, "forever"), ("lock_ms", 90_000, "90s"), ("backoff_ms_min", 60_000, "1m"), ("x", -1, -1)],
)
def test_times_have_units(name: str, value: int, text: Any) -> None:
    assert unit_text(name, value) == text
    assert with_unit(name, text) == value


@pytest.mark.parametrize(("name", "text"), [("retention_ms", "14"), ("retention_bytes", "1PB"), ("lock_ms", "ever")])
def test_text_without_a_known_unit_is_refused(name: str, text: str) -> None:
    with pytest.raises(PenstockError, match=f"'{text}': write a number with its unit"):
        with_unit(name, text)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_number_that_is_not_whole_is_refused(value: object) -> None:
    with pytest.raises(PenstockError, match="is no whole number"):
        whole_number(value)
