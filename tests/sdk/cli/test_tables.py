import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json


def test_list_of_topics_shows_the_settings_that_differ_from_their_defaults(service: MemoryPenstock) -> None:
    service.create_topic("plain")
    service.create_topic("short", config={"retention_ms": 3_600_000})
    shown = run(service.transport, "topics", "list").stdout
    assert "retention_ms=3600000" in shown
    assert shown.count("=") == 1
    assert max(map(len, shown.splitlines())) <= 100
    assert "cleanup_policy=delete" in run(service.transport, "topics", "describe", "plain").stdout


def test_groups_are_shown_without_epochs(service: MemoryPenstock) -> None:
    service.admin().alter_group("g", {"session_timeout_ms": 60_000})
    shown = run(service.transport, "groups", "list").stdout
    assert "session_timeout_ms=60000" in shown
    assert shown.count("=") == 1
    described = run(service.transport, "groups", "describe", "g").stdout
    assert "epoch" not in shown + described
    assert "assignor=sticky" in described
    assert "epoch" in run_json(service.transport, "groups", "describe", "g")


def test_setting_of_a_time_may_be_a_duration(service: MemoryPenstock) -> None:
    created = run_json(service.transport, "topics", "create", "a", "--config", "retention_ms=7d")
    assert created["config"]["retention_ms"] == 7 * 86_400_000
    altered = run_json(service.transport, "topics", "alter", "a", "--config", "retention_ms=forever")
    assert altered["config"]["retention_ms"] == -1
    group = run_json(service.transport, "groups", "alter", "g", "--config", "session_timeout_ms=60s")
    assert group["config"]["session_timeout_ms"] == 60_000


@pytest.mark.parametrize("setting", ["retention_ms=7w", "retention_ms=soon", "retention_ms"])
def test_setting_that_is_no_duration_is_wrong_usage(service: MemoryPenstock, setting: str) -> None:
    assert run(service.transport, "topics", "create", "a", "--config", setting).exit_code == 2
