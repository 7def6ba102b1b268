"""Filters on the command line: the policy itself, or `@` and the file that holds it."""

from pathlib import Path

import click


def filter_text(given: str) -> str:
    """The policy as text, not yet parsed. Raises click.BadParameter for a file that cannot be read."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{given!r:.100}: {error}", param_hint="--filter") from error
