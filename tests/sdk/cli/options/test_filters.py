from pathlib import Path

import click
import pytest

from penstock.cli.options.filters import filter_text

POLICY = '{"type": ["commandé"]}'


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
