"""`penstock config show` prints values, defaults, sources and effects."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli import main
from penstock.testing import MemoryPenstock
from penstock.tuning.sections import SECTIONS


def run(*arguments: str, service: MemoryPenstock | None = None) -> Result:
    transport = None if service is None else service.transport
    return CliRunner().invoke(main, ["config", "show", *arguments], obj=transport, catch_exceptions=False)


def shown(*arguments: str, service: MemoryPenstock | None = None) -> dict[str, dict[str, Any]]:
    result = run(*arguments, "--json", service=service)
    assert result.exit_code == 0, result.output
    return {name: {each["setting"]: each for each in settings} for name, settings in json.loads(result.stdout).items()}


@pytest.fixture(autouse=True)
def nothing_exported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_STACK", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_show_has_every_section_and_setting(service: MemoryPenstock) -> None:
    known = shown(service=service)
    assert list(known) == [section.name for section in SECTIONS]
    assert [list(settings) for settings in known.values()] == [
        [each.name for each in section.settings] for section in SECTIONS
    ]


def test_setting_has_value_default_source_and_effect(service: MemoryPenstock) -> None:
    assert shown("producer", service=service)["producer"]["linger_ms"] == {
        "setting": "linger_ms",
        "value": 5,
        "default": 5,
        "source": "default",
        "effect": "How long a record may wait for other records to join its batch.",
    }


def test_topic_has_its_own_settings(service: MemoryPenstock) -> None:
    service.create_topic("orders", config={"retention_ms": 3_600_000})
    known = shown("--topic", "orders", service=service)
    assert list(known) == ["topic"]
    assert (known["topic"]["retention_ms"]["value"], known["topic"]["retention_ms"]["source"]) == (3_600_000, "topic")
    assert known["topic"]["index_tags"]["source"] == "default"


def test_groups_and_subscriptions_have_their_own_settings(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.create_share_group("workers", "orders", {"lock_ms": 5_000})
    service.admin().alter_group("billing", {"session_timeout_ms": 20_000})
    service.create_topic("mirror")
    service.admin().put_subscription("copy", "orders", {"topic": "mirror"}, {"batch_records": 7})
    known = shown(
        *("--share-group", "workers", "--group", "billing", "--subscription", "copy", "producer"), service=service
    )
    assert list(known) == ["producer", "group", "share-group", "subscription"]
    assert (known["share-group"]["lock_ms"]["value"], known["share-group"]["lock_ms"]["source"]) == (
        5_000,
        "share group",
    )
    assert known["group"]["session_timeout_ms"]["value"] == 20_000
    assert known["subscription"]["batch_records"]["value"] == 7


def test_stage_is_what_the_service_tells(service: MemoryPenstock) -> None:
    known = shown("stage", service=service)["stage"]
    assert known["storage_profile"]["source"] == "stage"
    assert known["storage_profile"]["value"]
    assert known["has_alarms"]["source"] == "not known"


def test_show_says_so_when_no_service_answers() -> None:
    result = run("stage", "producer")
    assert result.exit_code == 0
    assert "the stage is not known: NOT_CONFIGURED: no service to talk to" in result.stderr
    assert "linger_ms" in result.stdout


def test_connection_tells_the_environment_and_keeps_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "https://queue.example")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-show")
    result = run("connection", "--json")
    known = {each["setting"]: each for each in json.loads(result.stdout)["connection"]}
    assert (known["PENSTOCK_URL"]["value"], known["PENSTOCK_URL"]["source"]) == ("https://queue.example", "environment")
    assert "do-not-show" not in result.output


def test_unknown_topic_is_an_error(service: MemoryPenstock) -> None:
    result = run("--topic", "absent", service=service)
    assert result.exit_code == 1
    assert "absent" in result.output


def test_table_shows_the_section_and_its_place(service: MemoryPenstock) -> None:
    out = run("topic", service=service).stdout
    assert out.startswith("topic: `penstock topics create | alter --config NAME=VALUE`")
    assert "retention_ms" in out
