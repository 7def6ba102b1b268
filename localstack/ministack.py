"""MiniStack's own virtual environment. Its workers see its packages, so Penstock's packages must not be in it."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from localstack.errors import LocalStackError
from localstack.places import CACHE, CHECKOUT

LOCK_FILE = CHECKOUT / "requirements" / "ministack.txt"


def ministack_python() -> Path | None:
    """Returns the Python that has the locked MiniStack, None if it is not installed yet."""
    python = _folder() / "bin" / "python"
    return python if python.exists() else None


def install_ministack() -> Path:
    """Installs MiniStack by hash and returns its Python. Downloads about 20 MB.

    The folder gets its name when it is complete, so an interrupted or concurrent installation does no harm.
    """
    folder = _folder()
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="ministack-") as work:
        made = Path(work) / "venv"
        _run([sys.executable, "-m", "venv", "--without-pip", str(made)])
        pip = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python")]
        _run([*pip, "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(LOCK_FILE)])
        try:
            os.rename(made, folder)
        except OSError:
            if ministack_python() is None:
                raise
    for old in CACHE.glob("ministack-*"):
        if old != folder and (old / "pyvenv.cfg").exists():
            shutil.rmtree(old, ignore_errors=True)
    return folder / "bin" / "python"


def _folder() -> Path:
    key = hashlib.sha256(LOCK_FILE.read_bytes() + f"{sys.base_prefix} {sys.version}".encode()).hexdigest()[:12]
    return CACHE / f"ministack-{key}"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalStackError(f"{' '.join(command[1:])} failed:\n{done.stderr.strip()[-2000:]}")
