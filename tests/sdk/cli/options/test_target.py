"""The target of a subscription from the options of a command. tests/sdk/cli/test_subscriptions.py has the commands."""

from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli.options.target import target_of

NONE: dict[str, Any] = dict.fromkeys(("function", "sqs", "event_bus", "https", "copy_to", "secret_file", "secret_env"))


@pytest.mark.parametrize(("option", "kind"), [("sqs", "sqs"), ("event_bus", "event_bus"), ("copy_to", "topic")])
def test_each_option_is_a_kind_of_target(option: str, kind: str) -> None:
    assert target_of(**{**NONE, option: "place"}) == {kind: "place"}


def test_no_option_is_no_target() -> None:
    assert target_of(**NONE) is None


def test_endpoint_may_leave_its_secret_out(tmp_path: Path) -> None:
    assert target_of(**{**NONE, "https": "https://x"}) == {"https": {"url": "https://x"}}
    (tmp_path / "secret").write_text(" whsec_a\n")
    found = target_of(**{**NONE, "https": "https://x", "secret_file": tmp_path / "secret"})
    assert found == {"https": {"url": "https://x", "secret": "whsec_a"}}


def test_two_targets_are_wrong_usage() -> None:
    with pytest.raises(click.UsageError):
        target_of(**{**NONE, "sqs": "x", "copy_to": "y"})


ARN = "arn:aws:lambda:us-east-1:000000000000:function:pack"


def test_function_is_named_by_its_arn_anywhere_and_by_its_name_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    assert target_of(**{**NONE, "function": ARN}) == {"lambda": ARN}
    with pytest.raises(click.UsageError, match="--lambda pack: give the function's ARN"):
        target_of(**{**NONE, "function": "pack"})
    monkeypatch.setenv("PENSTOCK_URL", "https://a.execute-api.eu-west-1.amazonaws.com")
    with pytest.raises(click.UsageError, match="give the function's ARN"):
        target_of(**{**NONE, "function": "pack"})
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:4567")
    assert target_of(**{**NONE, "function": "pack"}) == {"lambda": ARN}
    monkeypatch.delenv("PENSTOCK_URL")
    (tmp_path / ".penstock").mkdir()
    (tmp_path / ".penstock" / "local.env").touch()
    assert target_of(**{**NONE, "function": "pack"}) == {"lambda": ARN}
