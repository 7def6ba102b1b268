"""Finds the code that functions and jobs run: in a checkout, or in the environment that pip installed Penstock to.

Both hold the same packages, so both make the same assets. The lock files lie next to this module.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("penstock_core", "penstock_service", "penstock_handlers", "penstock", "penstock_spark")
FUNCTIONS_LOCK = Path(__file__).parent / "locks" / "lambda.txt"
JOBS_LOCK = Path(__file__).parent / "locks" / "jobs.txt"
_CACHE_FOLDER = Path(".penstock/assets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The folders of Penstock's packages by name, and the folder that keeps what is built of them."""

    packages: Mapping[str, Path]
    cache: Path

    @property
    def scripts(self) -> Path:
        """The folder with one script for each job."""
        return self.packages["penstock_spark"] / "scripts"

    def files(self, *packages: str, suffix: str = "") -> Iterator[tuple[str, Path]]:
        """Yields the files of packages with their names in a zip, sorted by package and path. No bytecode."""
        for package in packages:
            folder = self.packages[package]
            for path in sorted(folder.rglob(f"*{suffix}")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield f"{package}/{path.relative_to(folder).as_posix()}", path


def installed_sources() -> Sources:
    """Returns the packages that this Python imports. Builds go to .penstock/assets/ in the working directory.

    Raises ModuleNotFoundError if a package is missing.
    """
    return Sources(packages={name: _folder_of(name) for name in PACKAGES}, cache=Path.cwd() / _CACHE_FOLDER)


def _folder_of(package: str) -> Path:
    """Finds a package without importing it, because its imports may not be installed."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is missing: install Penstock anew", name=package)
    return Path(spec.origin).resolve().parent
