"""A `penstock` command as a process of its own, from the checkout's sources."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_SCRIPT = "import sys; sys.path[:0] = {paths!r}; sys.argv[0] = 'penstock'; from penstock.cli import main; main()"
_OURS = ("PENSTOCK_", "AWS_")


def penstock(folder: Path, environment: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it says on stdout and stderr. Of ours, it has `environment` alone."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(paths=[each for each in sys.path if each]), *words],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
