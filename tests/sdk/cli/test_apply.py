"""`penstock apply`, against the service in memory."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin
from penstock.model.access import AccessRule
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json
from tests.sdk.http.faulty_transport import FaultyTransport

TEXT = """
owns: {names: [shop.*]}
topics:
  shop.orders: {partitions: 2}
  shop.old:
share_groups:
  shop.pack: {topics: [shop.orders]}
"""


ROLE = "arn:aws:iam::111122223333:role/shop"


@pytest.fixture
def closed() -> Iterator[MemoryPenstock]:
    with MemoryPenstock(denies_by_default=True) as service:
        yield service


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)
    return path


def test_apply_shows_the_changes_and_makes_them(service: MemoryPenstock, file: Path) -> None:
    dry = run(service.transport, "apply", "-f", str(file), "--dry-run")
    assert (dry.exit_code, dry.stdout.splitlines()[0], dry.stdout.splitlines()[-1]) == (
        0,
        "+ topic shop.orders: partitions=2",
        "3 to create; 0 as the file says",
    )
    assert run_json(service.transport, "topics", "list") == []
    assert run(service.transport, "apply", "-f", str(file)).stdout.endswith("3 created; 0 as the file says\n")
    again = run_json(service.transport, "apply", "-f", str(file))
    assert again == {"changes": [], "unchanged": 3, "made": 0, "secrets_not_sent": 0, "errors": []}


def test_prune_asks_before_it_deletes(service: MemoryPenstock, file: Path) -> None:
    run(service.transport, "apply", "-f", str(file))
    file.write_text(TEXT.replace("  shop.old:\n", ""))
    asked = run(service.transport, "apply", "-f", str(file), "--prune", stdin=b"n\n")
    assert "- topic shop.old  (and all its records)" in asked.stdout
    assert "Make these 1 changes, for ever?" in asked.stderr
    assert asked.exit_code == 1
    assert len(run_json(service.transport, "topics", "list")) == 2
    done = run_json(service.transport, "apply", "-f", str(file), "--prune", "--yes")
    assert [(each["action"], each["name"]) for each in done["changes"]] == [("delete", "shop.old")]
    assert len(run_json(service.transport, "topics", "list")) == 1


def test_prune_needs_what_the_file_owns(service: MemoryPenstock, file: Path) -> None:
    file.write_text("topics: {}")
    result = run(service.transport, "apply", "-f", str(file), "--prune")
    assert (result.exit_code, "add owns, such as {names: [shop.*]}" in result.stderr) == (2, True)


def test_lower_retention_asks_and_an_omitted_one_stays(service: MemoryPenstock, file: Path) -> None:
    admin = Admin(transport=service.transport)
    admin.create_topic("a", 1, {"retention_ms": -1})
    file.write_text("topics: {a: {}}")
    assert run_json(service.transport, "apply", "-f", str(file))["changes"] == []
    file.write_text("topics: {a: {retention_ms: null}}")
    asked = run(service.transport, "apply", "-f", str(file))
    told = "~ topic a: retention_ms: forever -> 14d  (what is beyond the lower retention_ms goes, for ever)"
    assert (asked.exit_code, asked.stdout.splitlines()) == (1, [told])
    assert "Make these 1 changes, for ever?" in asked.stderr
    assert admin.describe_topic("a").topic.config["retention_ms"] == -1
    assert run(service.transport, "apply", "-f", str(file), "--yes").exit_code == 0
    assert run_json(service.transport, "apply", "-f", str(file))["changes"] == []


def test_prune_of_topics_whose_users_are_hidden_needs_force(closed: MemoryPenstock, file: Path) -> None:
    admin = Admin(transport=closed.transport)
    admin.create_topic("shop.orders")
    admin.create_share_group("billing", "shop.orders")
    admin.change_acls(add=[AccessRule(principal=ROLE, operation="all", resource="topic:shop.*")])
    team = closed.transport_as(ROLE)
    file.write_text("owns: {names: [shop.*]}\ntopics: {}\n")
    words = ("apply", "-f", str(file), "--prune", "--yes")
    refused = run(team, *words)
    assert refused.exit_code == 1
    assert refused.stderr.splitlines() == [
        "error: shop.orders has users that you may not see: 1 share group",
        "error: 1 topics would go with all their records: let somebody prune who may see them, or give --force",
    ]
    assert len(json.loads(run(team, *words, "--json").stderr)["error"]["mistakes"]) == 2
    dry = run(team, *words, "--dry-run")
    assert (dry.exit_code, "users that you may not see" in dry.stderr) == (0, True)
    assert [each.name for each in admin.list_topics()] == ["shop.orders"]
    for where in ("share_group:*", "subscription:*"):
        admin.change_acls(add=[AccessRule(principal=ROLE, operation="describe", resource=where)])
    assert "share group billing uses it (topics)" in run(team, *words).stderr
    admin.change_acls(remove=[AccessRule(principal=ROLE, operation="describe", resource="share_group:*")])
    assert run(team, *words, "--force").exit_code == 0
    assert admin.list_topics() == []


def test_section_without_entries_is_no_prune(service: MemoryPenstock, file: Path) -> None:
    run(service.transport, "apply", "-f", str(file))
    file.write_text("owns: {names: [shop.*]}\ntopics:\n#  shop.orders:\nshare_groups: {}\n")
    refused = run(service.transport, "apply", "-f", str(file), "--prune", "--yes")
    assert (refused.exit_code, "write {} if you mean that" in refused.stderr) == (1, True)
    assert len(run_json(service.transport, "topics", "list")) == 2


def test_own_right_is_given_up_by_its_own_words(closed: MemoryPenstock, file: Path) -> None:
    admin = Admin(transport=closed.transport)
    admin.change_acls(add=[AccessRule(principal=ROLE, operation="all", resource="*")])
    team = closed.transport_as(ROLE)
    file.write_text("owns: {names: ['*']}\nacls: []\ntopics: {a: {}}\n")
    words = ("apply", "-f", str(file), "--prune")
    for stdin in (b"y\nn\n", b"n\n"):
        refused = run(team, *words, stdin=stdin)
        assert (refused.exit_code, "take your own right to alter the service" in refused.stderr) == (1, True)
    refused = run(team, *words, "--yes")
    assert (refused.exit_code, "Give up your own right" in refused.stderr) == (1, True)
    assert (len(admin.list_acls()), admin.list_topics()) == (1, [])
    assert "take your own right" in run(team, *words, "--dry-run").stderr
    assert run(team, *words, "--yes", "--force").exit_code == 0
    assert ([each.name for each in admin.list_topics()], admin.list_acls()) == (["a"], [])


def test_secret_is_sent_again_by_its_option(
    service: MemoryPenstock, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "whsec_" + "A" * 43 + "=")
    target = "{https: {url: 'https://x.example.com/a', secret_env: SECRET}}"
    file.write_text(f"topics: {{a: {{}}}}\nsubscriptions: {{p: {{topics: [a], target: {target}}}}}\n")
    words = ("apply", "-f", str(file))
    assert run_json(service.transport, *words)["secrets_not_sent"] == 0
    assert run_json(service.transport, *words)["secrets_not_sent"] == 1
    assert "secrets that were not compared: 1 (--send-secrets sends them)" in run(service.transport, *words).stdout
    new = "whsec_" + "B" * 42 + "A="
    monkeypatch.setenv("SECRET", new)
    sent = FaultyTransport(service.transport)
    assert run_json(sent, *words)["changes"] == []
    assert not any(new.encode() in body for *_, body in sent.calls)
    done = run_json(sent, *words, "--send-secrets")
    assert ([each["note"] for each in done["changes"]], done["made"]) == (["its secret is sent"], 1)
    assert any(new.encode() in body for *_, body in sent.calls)
    assert new not in json.dumps(done)


def test_file_of_the_stage_says_what_it_lacks(closed: MemoryPenstock) -> None:
    admin = Admin(transport=closed.transport)
    admin.create_topic("a")
    admin.set_quota("topic", "a", {"fetch_bytes_per_s": 1})
    rules = [AccessRule(principal=each, operation="read", resource="topic:a") for each in (ROLE, f"{ROLE}-other")]
    admin.change_acls(add=rules)
    part = run(closed.transport_as(ROLE), "apply", "--from-stage", "--json")
    assert part.exit_code == 0
    assert part.stderr.startswith("you may not describe the service: the file has no quotas, and of the access rules")
    document = json.loads(part.stdout)
    assert ("quotas" in document, [each["principal"] for each in document["acls"]]) == (False, [ROLE])
    every = run(closed.transport, "apply", "--from-stage", "--json")
    assert (every.stderr, len(json.loads(every.stdout)["acls"]), "quotas" in every.stdout) == ("", 2, True)


def test_mistakes_are_told_one_a_line(service: MemoryPenstock, file: Path) -> None:
    file.write_text("topics:\n  a: {partitions: 0}\n  b: {x: 1}\n")
    result = run(service.transport, "apply", "-f", str(file))
    assert result.exit_code == 1
    assert [line.split(" topics.")[0] for line in result.stderr.splitlines()] == [
        f"error: {file}:2:",
        f"error: {file}:3:",
    ]
    as_json = run(service.transport, "apply", "-f", str(file), "--json")
    assert len(json.loads(as_json.stderr)["error"]["mistakes"]) == 2
    file.write_text("share_groups:\n  s: {topics: [none]}\n")
    unknown = run(service.transport, "apply", "-f", str(file)).stderr
    assert unknown == (
        f"error: {file}:2: share_groups.s.topics: the topic 'none' is neither in the file nor in the stage\n"
    )


def test_settings_that_need_those_of_the_stage_stand_alone_in_a_file(service: MemoryPenstock, file: Path) -> None:
    target = "target: {lambda: 'arn:aws:lambda:us-east-1:111122223333:function:f'}"
    file.write_text(f"""
topics: {{t: , dead: }}
share_groups: {{s: {{topics: t, dead_letter_topic: dead}}}}
subscriptions: {{p: {{topics: t, {target}, dead_letter_topic: dead}}}}
groups: {{g: {{session_timeout_ms: 90s}}}}
""")
    assert run(service.transport, "apply", "-f", str(file)).exit_code == 0
    text = f"""
share_groups: {{s: {{topics: t, deliveries_max: 1}}}}
subscriptions: {{p: {{topics: t, {target}, retry: {{attempts_max: 1}}}}}}
groups: {{g: {{heartbeat_interval_ms: 25s}}}}
"""
    file.write_text(text)
    done = run_json(service.transport, "apply", "-f", str(file))
    assert {each["name"]: each["after"] for each in done["changes"]} == {
        "s": {"deliveries_max": 1},
        "p": {"attempts_max": 1},
        "g": {"heartbeat_interval_ms": 25_000},
    }
    file.write_text(text.replace("{s:", "{s2:").replace("{p:", "{p2:").replace("{g:", "{g2:"))
    refused = run(service.transport, "apply", "-f", str(file))
    assert (refused.exit_code, refused.stdout) == (1, "")
    for told in ("2: share_groups.s2: deliveries_max=1 without", "3: subscriptions.p2: attempts_max=1 without"):
        assert f"error: {file}:{told}" in refused.stderr
    assert f"error: {file}:4: groups.g2: heartbeat_interval_ms=25000" in refused.stderr


def test_failed_change_is_told_with_its_name(service: MemoryPenstock, file: Path) -> None:
    file.write_text("topics:\n  a: {min_insync_zones: 7}\n  b: {}\n")
    result = run(service.transport, "apply", "-f", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: topic a: INVALID_CONFIG: min_insync_zones=7")
    assert result.stdout.endswith("1 of 2 changes were made: run it again to go on\n")


def test_file_of_the_stage_changes_nothing(service: MemoryPenstock, file: Path) -> None:
    run(service.transport, "apply", "-f", str(file))
    for option, name in (("--json", "out.json"), ("--from-stage", "out.yaml")):
        text = run(service.transport, "apply", "--from-stage", option, "--owns", "shop.*").stdout
        out = file.parent / name
        out.write_text(text)
        assert run_json(service.transport, "apply", "-f", str(out), "--prune")["changes"] == []
    assert run_json(service.transport, "apply", "--from-stage", "--owns", "till.*")["topics"] == {}


def test_schema_is_printed(service: MemoryPenstock) -> None:
    assert json.loads(run(service.transport, "apply", "--schema").stdout)["properties"]["topics"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--schema", "--from-stage"),
        ("--schema", "--owns", "a"),
        ("--schema", "--prune"),
        ("--from-stage", "--force"),
        ("--from-stage", "--send-secrets"),
    ],
)
def test_options_that_do_not_fit_are_refused(service: MemoryPenstock, words: tuple[str, ...]) -> None:
    assert run(service.transport, "apply", *words).exit_code == 2
