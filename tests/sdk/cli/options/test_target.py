"""The target of a subscription from the options of a command. tests/sdk/cli/test_subscriptions.py has the commands."""

from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli.options.target import target_of

NONE: dict[str, Any] = dict.fromkeys(("function", "sqs", "event_bus", "https", "copy_to", "secret_file", "secret_env"))


@pytest.mark.parametrize(
    ("option", "kind"), [("function", "lambda"), ("sqs", "sqs"), ("event_bus", "event_bus"), ("copy_to", "topic")]
)
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
