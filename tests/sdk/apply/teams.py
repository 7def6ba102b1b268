"""The file of a stage of many teams: what a platform team would write.

`python -m tests.sdk.apply.teams > teams.json` writes the one of 40 teams: 200 topics, 400 rules, 80 quotas, 40 share
groups and as many groups.
"""

import json
from typing import Any

ROLE = "arn:aws:iam::111122223333:role"


def teams_document(teams: int) -> dict[str, Any]:
    """Each team has 5 topics, 10 rules, 2 quotas, a share group and a group."""
    document: dict[str, Any] = {
        "owns": {"names": ["team*"], "principals": [f"{ROLE}/team*"]},
        **{section: {} for section in ("topics", "groups", "share_groups")},
        "acls": [],
        "quotas": [],
    }
    for number in range(teams):
        team = f"team{number:02}"
        topics = [f"{team}.{name}" for name in ("orders", "orders.dead", "events", "audit", "mail")]
        document["topics"] |= {topic: {"partitions": 2, "retention_ms": "7d"} for topic in topics}
        document["groups"][f"{team}.billing"] = {"session_timeout_ms": "30s"}
        document["share_groups"][f"{team}.pack"] = {"topics": [topics[0]], "dead_letter_topic": topics[1]}
        for role in ("api", "jobs"):
            resources = [f"topic:{team}.*", f"group:{team}.*"]
            operations = ["read", "write"]
            document["acls"].append(
                {"principal": f"{ROLE}/{team}-{role}", "operations": operations, "resources": resources}
            )
        everything = [f"topic:{team}.*", f"group:{team}.*"]
        document["acls"].append({"principal": f"{ROLE}/{team}-admin", "operations": "all", "resources": everything})
        document["quotas"] += [
            {"principal": f"{ROLE}/{team}-api", "produce_bytes_per_s": "10MB"},
            {"principal": f"{ROLE}/{team}-jobs", "fetch_bytes_per_s": "20MB", "topics_max": 20},
        ]
    return document


if __name__ == "__main__":
    print(json.dumps(teams_document(40), indent=1))
