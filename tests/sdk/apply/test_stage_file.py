from pathlib import Path

import pytest

from penstock.apply.stage import Noun
from penstock.apply.stage_file import MISTAKES_SHOWN, StageFile, read_stage_file
from penstock_core.errors import PenstockError

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
