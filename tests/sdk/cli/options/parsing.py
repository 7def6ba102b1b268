"""What a command gets of an option."""

from collections.abc import Callable
from typing import Any

import click
from click.testing import CliRunner


def parsed(option: Callable[[Callable[..., None]], Any], *arguments: str) -> dict[str, Any]:
    """The parameters of a command that has this option only. The arguments must be good."""
    got: dict[str, Any] = {}
    result = CliRunner().invoke(click.command()(option(lambda **given: got.update(given))), arguments)
    assert result.exit_code == 0, result.output
    return got
