import json
from pathlib import Path

from penstock import Admin
from penstock.apply.dump import dump
from penstock.apply.plan import plan
from penstock.apply.run import apply_changes, read_stage
from penstock.apply.stage import Noun, Ownership
from penstock.apply.stage_file import patterns_of_names, patterns_of_principals, read_stage_file
from penstock.testing import MemoryPenstock
from tests.sdk.apply.teams import ROLE

STAGE = {
    "topics": {"a": {"partitions": 2, "retention_ms": "1d"}, "a.dead": {"partitions": 1}, "b": {"partitions": 1}},
    "groups": {"g": {"session_timeout_ms": "30s"}},
    "share_groups": {
        "s": {
            "topics": ["a"],
            "dead_letter_topic": "a.dead",
            "ordering": "key",
            "start": "latest",
            "filter": {"x": ["1"]},
        }
    },
    "subscriptions": {
        "p": {"topics": ["a"], "target": {"topic": "b"}, "dead_letter_topic": "a.dead", "retry": {"age_ms_max": "1h"}}
    },
    "schedules": {
        "ac": {"cron": "0 9 * * *", "topic": "a", "time_zone": "Europe/Berlin", "record": "go"},
        "ad": {"cron": "1 9 * * *", "topic": "a", "enabled": False, "record": {"key": "k", "value": None}},
    },
    "acls": [
        {"principal": f"{ROLE}/a", "operations": ["read", "write"], "resources": ["topic:a", "topic:b"]},
        {"principal": f"{ROLE}/b", "permission": "deny", "operations": ["all"], "resources": ["topic:a"]},
    ],
    "quotas": [{"principal": f"{ROLE}/a", "topics_max": 3}, {"topic": "a*", "fetch_bytes_per_s": 1, "shared": True}],
}


def test_dump_is_the_file_that_made_the_stage(service: MemoryPenstock, tmp_path: Path) -> None:
    admin = Admin(transport=service.transport)
    file = tmp_path / "stage.json"
    file.write_text(json.dumps(STAGE))
    wanted = read_stage_file(file)
    outcome = apply_changes(admin, plan(wanted, read_stage(admin, [*Noun], has_rules=True), prune=False).changes)
    assert outcome.failed == ()
    present = read_stage(admin, [*Noun], has_rules=True)
    document = dump(present, None)
    assert document == STAGE
    assert plan(wanted, present, prune=False).changes == ()
    owned = Ownership(names=patterns_of_names(["a*"]), principals=patterns_of_principals(["*"]))
    part = dump(present, owned)
    assert part["owns"] == {"names": ["a*"], "principals": ["*"]}
    assert [*part["topics"]] == ["a", "a.dead"]
    assert [part[section] for section in ("groups", "share_groups", "subscriptions")] == [{}, {}, {}]
    assert [each["resources"] for each in part["acls"]] == [["topic:a"], ["topic:a"]]
    assert part["quotas"] == STAGE["quotas"]
