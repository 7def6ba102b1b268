"""The wheel of the checkout's sources."""

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PACKAGE_FOLDERS = ("functions", "sdk", "glue_jobs", "infra")


def build_wheel(folder: Path) -> Path:
    """The wheel, in `folder`."""
    source = folder / "source"
    for name in PACKAGE_FOLDERS:
        shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True)
    [wheel] = folder.glob("*.whl")
    shutil.rmtree(source)
    return wheel
