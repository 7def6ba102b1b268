"""Runs `penstock` in this process, against a transport."""

import json
from typing import Any

from click.testing import CliRunner, Result

from penstock.cli import main
from penstock.http.transport import Transport


def run(transport: Transport | None, *arguments: str, stdin: bytes | None = None) -> Result:
    """The command's exit code, output and errors."""
    return CliRunner().invoke(main, arguments, obj=transport, input=stdin)


def run_json(transport: Transport, *arguments: str, stdin: bytes | None = None) -> Any:
    """What the command prints with --json. It must succeed."""
    result = run(transport, *arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
