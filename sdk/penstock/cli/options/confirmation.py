"""A command that destroys something asks first."""

import click

YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr, unless `yes` answers. Raises click.Abort if the answer is no."""
    if not yes:
        click.confirm(question, abort=True, err=True)
