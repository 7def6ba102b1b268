from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from penstock.cli.options.settings import (
    BACK_TO_DEFAULT,
    CONFIG,
    GROUP_DEFAULTS,
    SIZE,
    TOPIC_DEFAULTS,
    YES,
    changed_settings_text,
    confirm,
    filter_text,
    parse_settings,
    settings_text,
)
from penstock_core.limits import UNLIMITED
from tests.sdk.cli.options.parsing import parsed

POLICY = '{"type": ["commandé"]}'
NONE: dict[str, Any] = dict.fromkeys(("function", "sqs", "event_bus", "https", "copy_to", "secret_file", "secret_env"))


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("max_batch_bytes=5000", {"max_batch_bytes": 5_000}),
        ("shift=-1", {"shift": -1}),
        ("validate_records=true", {"validate_records": True}),
        ("validate_records=false", {"validate_records": False}),
        ("assignor=range", {"assignor": "range"}),
        ("retention_ms=7d", {"retention_ms": 604_800_000}),
        ("retention_ms=forever", {"retention_ms": UNLIMITED}),
        ("retry_ms_max=1h", {"retry_ms_max": 3_600_000}),
        ("name=7d", {"name": "7d"}),
        ("name=a=b", {"name": "a=b"}),
    ],
)
def test_setting_is_a_number_a_boolean_a_duration_or_text(text: str, setting: dict[str, Any]) -> None:
    assert parse_settings([text]) == setting


@pytest.mark.parametrize("text", ["", "lock_ms", "lock_ms=", "=5", "lock_ms=soon", "lock_ms=5w"])
def test_setting_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"NAME=VALUE|is not a duration"):
        parse_settings([text])


def test_settings_are_shown_as_they_are_given() -> None:
    shown = settings_text({"validate_records": True, "retention_ms": 5, "assignor": "range"})
    assert shown == "validate_records=true retention_ms=5 assignor=range"
    assert parse_settings(shown.split()) == {"validate_records": True, "retention_ms": 5, "assignor": "range"}


@pytest.mark.parametrize("defaults", [TOPIC_DEFAULTS, GROUP_DEFAULTS])
def test_only_settings_that_differ_from_their_defaults_are_shown(defaults: dict[str, Any]) -> None:
    assert changed_settings_text(defaults, defaults) is None
    name = next(iter(defaults))
    assert changed_settings_text(defaults | {name: "x"}, defaults) == f"{name}=x"


def test_options_of_settings_may_be_repeated() -> None:
    assert parsed(CONFIG, "--config", "a=1", "--config", "b=2") == {"settings": ("a=1", "b=2")}
    assert parsed(BACK_TO_DEFAULT, "--default", "a", "--default", "b") == {"defaults": ("a", "b")}


def test_policy_is_the_text_itself() -> None:
    assert filter_text(POLICY) == POLICY


def test_policy_is_what_a_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(POLICY, encoding="utf-8")
    assert filter_text(f"@{file}") == POLICY


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_file_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "p.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(click.BadParameter) as caught:
        filter_text(f"@{file}")
    assert caught.value.param_hint == "--filter"
    assert caught.value.message.startswith(repr(f"@{file}")[:100])


@pytest.mark.parametrize(
    ("text", "size"), [("100", 100), ("7B", 7), ("1KB", 1_000), ("64KiB", 65_536), ("4mib", 4_194_304)]
)
def test_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "KB", "1.5MB", "-1", "1 GiB", "٣"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        SIZE.convert(text, None, None)


def _delete(*arguments: str, answer: str = "") -> Result:
    @click.command()
    @YES
    def delete(yes: bool) -> None:
        confirm("Delete it?", yes=yes)
        click.echo("deleted")

    return CliRunner().invoke(delete, arguments, input=answer)


def test_question_is_asked_beside_the_output() -> None:
    result = _delete(answer="y\n")
    assert (result.exit_code, result.stdout) == (0, "deleted\n")
    assert result.stderr.startswith("Delete it? [y/N]: ")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_command_ends_unless_the_answer_is_yes(answer: str) -> None:
    result = _delete(answer=answer)
    assert (result.exit_code, result.stdout) == (1, "")


def test_option_answers_the_question() -> None:
    result = _delete("--yes")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "deleted\n", "")
