import json
from pathlib import Path

import pytest

from penstock import Admin
from penstock.apply.plan import StagePlan, plan
from penstock.apply.run import ApplyOutcome, apply_changes, read_stage
from penstock.apply.stage import Noun
from penstock.apply.stage_file import read_stage_file
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from tests.sdk.apply.teams import ROLE, teams_document

STAGE = {
    "topics": {"a": {"partitions": 2}, "a.dead": {}, "b": {}},
    "groups": {"g": {"session_timeout_ms": "30s"}},
    "share_groups": {"s": {"topics": "a", "dead_letter_topic": "a.dead", "deliveries_max": 3}},
    "subscriptions": {"p": {"topics": ["a"], "target": {"topic": "b"}, "retry": {"patience_ms": "2m"}}},
    "schedules": {
        "c": {"cron": "0 9 * * *", "topic": "a", "record": "go", "time_zone": "Europe/Berlin"},
        "d": {"cron": " 0  9 * * *", "topic": "b", "record": {"key_base64": "aw==", "value": None}, "enabled": False},
    },
    "acls": [{"principal": f"{ROLE}/a", "operations": ["read"], "resources": "topic:a"}],
    "quotas": [
        {"principal": f"{ROLE}/a", "topics_max": 3},
        {"principal": f"{ROLE}/a*", "shared": True, "fetch_bytes_per_s": "1MB"},
    ],
}


def planned(admin: Admin, folder: Path, document: object, *, prune: bool = False) -> StagePlan:
    file = folder / "stage.json"
    file.write_text(json.dumps(document))
    wanted = read_stage_file(file)
    return plan(wanted, read_stage(admin, [*Noun], has_rules=True), prune=prune)


def brought_to(admin: Admin, folder: Path, document: object, *, prune: bool = False) -> ApplyOutcome:
    found = planned(admin, folder, document, prune=prune)
    assert found.mistakes == ()
    return apply_changes(admin, found.changes)


@pytest.fixture
def admin(service: MemoryPenstock) -> Admin:
    return Admin(transport=service.transport)


def test_second_run_changes_nothing(admin: Admin, tmp_path: Path) -> None:
    outcome = brought_to(admin, tmp_path, STAGE)
    assert (len(outcome.made), outcome.failed) == (11, ())
    assert [each.next_ms is None for each in admin.list_schedules()] == [False, True]
    assert admin.describe_topic("a").topic.partitions == 2
    assert [each.shared for each in admin.list_quotas()] == [False, True]
    assert admin.describe_subscription("p").subscription.config["retry"]["patience_ms"] == 120_000
    assert planned(admin, tmp_path, STAGE).changes == ()


def test_schedule_is_altered_in_part_and_bound_to_a_topic_that_is_made_anew(admin: Admin, tmp_path: Path) -> None:
    brought_to(admin, tmp_path, STAGE)
    schedules = {**STAGE["schedules"], "c": {"cron": "0 8 * * *", "topic": "a", "record": "other"}}  # type: ignore[dict-item]
    found = planned(admin, tmp_path, {**STAGE, "schedules": schedules})
    [text] = [each.text() for each in found.changes]
    assert text == "~ schedule c: cron: 0 9 * * * -> 0 8 * * *  record: value:b'go' -> value:b'other'"
    apply_changes(admin, found.changes)
    assert admin.describe_schedule("c").time_zone == "Europe/Berlin"
    before = admin.describe_schedule("d").topic_id
    admin.delete_topic("b")
    brought_to(admin, tmp_path, {**STAGE, "schedules": schedules})
    assert admin.describe_schedule("d").topic_id != before


def test_each_kind_is_altered_and_pruned(admin: Admin, tmp_path: Path) -> None:
    brought_to(admin, tmp_path, STAGE)
    altered = {
        "owns": {"names": "*", "principals": "*"},
        "topics": {"a": {"partitions": 3, "retention_ms": "1d"}, "b": {}},
        "groups": {"g": {"session_timeout_ms": None}},
        "share_groups": {"s": {"topics": ["a", "b"], "dead_letter_topic": None}},
        "subscriptions": {},
        "schedules": {},
        "acls": [],
        "quotas": [{"principal": f"{ROLE}/a", "groups_max": 1}],
    }
    outcome = brought_to(admin, tmp_path, altered, prune=True)
    assert outcome.failed == ()
    assert planned(admin, tmp_path, altered, prune=True).changes == ()
    topic = admin.describe_topic("a").topic
    assert (topic.partitions, topic.config["retention_ms"]) == (3, 86_400_000)
    assert [each.name for each in admin.list_topics() if each.name[0] != "_"] == ["a", "b"]
    group = admin.describe_share_group("s").group
    assert (sorted(group.topics), group.config["dead_letter_topic"]) == (["a", "b"], None)
    assert (admin.list_subscriptions(), admin.list_acls()) == ([], [])
    assert [each.limits for each in admin.list_quotas()] == [{"groups_max": 1}]


def test_topic_made_anew_is_bound_again(admin: Admin, tmp_path: Path) -> None:
    brought_to(admin, tmp_path, STAGE)
    admin.delete_topic("a")
    assert [(each.what, each.name) for each in brought_to(admin, tmp_path, STAGE).made] == [
        (Noun.TOPIC, "a"),
        (Noun.SHARE_GROUP, "s"),
        (Noun.SUBSCRIPTION, "p"),
        (Noun.SCHEDULE, "c"),
    ]
    assert [each.topic for each in admin.describe_share_group("s").partitions] == ["a", "a"]


def test_run_ends_after_the_step_that_fails(admin: Admin, tmp_path: Path) -> None:
    changed = {
        "topics": {"b": {}, "c": {"min_insync_zones": 7}},
        "share_groups": {"s": {"topics": "b"}},
    }
    outcome = brought_to(admin, tmp_path, changed)
    assert [each.name for each in outcome.made] == ["b"]
    [(change, error)] = outcome.failed
    assert (change.name, error.code) == ("c", ErrorCode.INVALID_CONFIG)
    assert admin.list_share_groups() == []


def test_rules_are_removed_after_the_topics(admin: Admin, tmp_path: Path) -> None:
    owns = {"owns": {"names": "*", "principals": "*"}}
    brought_to(admin, tmp_path, {**STAGE, **owns})
    gone: dict[str, object] = {
        "topics": {},
        "share_groups": {},
        "subscriptions": {},
        "schedules": {},
        "acls": [],
        "quotas": [],
    }
    outcome = brought_to(admin, tmp_path, {**gone, **owns}, prune=True)
    assert [each.what for each in outcome.made][-1] == "rule"
    assert (admin.list_acls(), [each for each in admin.list_topics() if each.name[0] != "_"]) == ([], [])


def test_many_teams_are_applied_once(admin: Admin, tmp_path: Path) -> None:
    document = teams_document(12)
    outcome = brought_to(admin, tmp_path, document)
    assert (len(outcome.made), outcome.failed) == (12 * 19, ())
    assert len(admin.list_acls()) == 120  # more than one change may have
    assert planned(admin, tmp_path, document, prune=True).changes == ()
