"""`penstock subscriptions`, against the service in memory."""

from pathlib import Path

import pytest

from penstock.testing import MemoryPenstock
from tests.core.push.push_samples import SECRET
from tests.sdk.cli.command import run, run_json

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"
CREATE = ("subscriptions", "create", "packing", "orders")


@pytest.fixture(autouse=True)
def topics(service: MemoryPenstock) -> None:
    for topic in ("orders", "orders.dead", "mirror"):
        service.create_topic(topic)


def test_subscription_is_made_shown_altered_paused_and_deleted(service: MemoryPenstock) -> None:
    transport = service.transport
    made = run_json(
        transport, *CREATE, "--lambda", ARN, "--dead-letters", "orders.dead", "--filter", '{"type": ["a"]}',
        "--config", "backoff_ms_max=5m", "--config", "batch_records=7", "--config", "bisect=false",
    )  # fmt: skip
    assert made["target"] == {"lambda": ARN}
    config = made["config"]
    assert (config["batch_records"], config["bisect"], config["dead_letter_topic"]) == (7, False, "orders.dead")
    assert (config["retry"]["backoff_ms_max"], config["filter"]) == (300_000, {"type": ["a"]})
    assert [each["name"] for each in run_json(transport, "subscriptions", "list")] == ["packing"]
    assert ARN in run(transport, "subscriptions", "list").stdout
    altered = run_json(
        transport, "subscriptions", "alter", "packing", "--config", "attempts_max=9", "--topic", "mirror"
    )
    assert (altered["config"]["retry"]["attempts_max"], altered["target"]) == (9, {"topic": "mirror"})
    altered = run_json(transport, "subscriptions", "alter", "packing", "--default", "attempts_max")
    assert altered["config"]["retry"]["attempts_max"] == 5
    assert run_json(transport, "subscriptions", "pause", "packing")["state"] == "paused"
    assert "packing (paused) of orders to topic mirror" in run(transport, "subscriptions", "describe", "packing").stdout
    assert run_json(transport, "subscriptions", "resume", "packing")["state"] == "active"
    found = run_json(transport, "subscriptions", "describe", "packing")
    assert (found["lag"], found["partitions"][0]["last_result"]) == (0, "none")
    assert run_json(transport, "subscriptions", "delete", "packing", "--yes") == {"deleted": "packing"}
    for command in ("describe", "pause", "resume"):
        assert run(transport, "subscriptions", command, "packing").exit_code == 1
    assert run(transport, "subscriptions", "alter", "packing", "--sqs", "x").exit_code == 1
    assert service.admin().list_subscriptions() == []


def test_secret_comes_from_a_file_or_the_environment(
    service: MemoryPenstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, endpoint = service.transport, ("--https", "https://example.com/hook")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    for option in (("--secret-file", str(tmp_path / "secret")), ("--secret-env", "HOOK_SECRET")):
        result = run(transport, *CREATE, *endpoint, *option)
        assert result.exit_code == 0, result.output
        assert "https https://example.com/hook" in result.stdout
        assert SECRET not in result.stdout
        service.admin().delete_subscription("packing")


@pytest.mark.parametrize(
    "options",
    [
        ("--lambda", ARN, "--topic", "mirror"),
        ("--lambda", ARN, "--secret-env", "HOME"),
        ("--https", "https://example.com", "--secret-file", "/nowhere"),
        ("--https", "https://example.com", "--secret-env", "NOT_SET_ANYWHERE"),
        ("--https", "https://example.com", "--secret-env", "HOME", "--secret-file", "/etc/hosts"),
        ("--lambda", ARN, "--filter", "[1]"),
        ("--lambda", ARN, "--config", "batch_records"),
    ],
)
def test_wrong_options_are_wrong_usage(service: MemoryPenstock, options: tuple[str, ...]) -> None:
    assert run(service.transport, *CREATE, *options).exit_code == 2


def test_alter_without_a_change_is_wrong_usage(service: MemoryPenstock) -> None:
    assert run(service.transport, "subscriptions", "alter", "packing").exit_code == 2


def test_service_refuses_what_it_does_not_take(service: MemoryPenstock) -> None:
    for options in (("--lambda", "arn:pack"), ("--lambda", ARN, "--config", "mode=fast")):
        assert run(service.transport, *CREATE, *options).exit_code == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "'packing' is new: give it a target, one of --lambda"),
        (("--https", "https://example.com/hook"), "give --secret-file or --secret-env"),
        (
            ("--lambda", ARN, "--config", "batch_record=5"),
            "'batch_record' is no setting: there are mode, start",
        ),
    ],
)
def test_error_names_the_options(service: MemoryPenstock, options: tuple[str, ...], told: str) -> None:
    refused = run(service.transport, *CREATE, *options)
    assert refused.exit_code == 2
    assert told in refused.stderr
