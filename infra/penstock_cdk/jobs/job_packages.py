"""The files that Spark jobs are sent with: their scripts, Penstock's own packages as a zip, and their dependencies.

The packages are pure Python, which Spark and Glue import from the zip. The dependencies hold native code, which Python
cannot import from a zip. EMR Serverless unpacks them from a second zip (`spark.archives`), which this module builds
without Docker for the application's processor. Glue installs locks/jobs.txt by hash when a job starts.

A hash of its inputs names each zip, and a zip holds no times, so the same sources make the same zip on every machine.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock_cdk.assets import hash_of, install_wheels, keep_latest, write_zip
from penstock_cdk.settings import StageSettings
from penstock_cdk.sources import JOBS_LOCK, Sources

PACKAGES = ("penstock_core", "penstock_service", "penstock", "penstock_spark")
# Every release of EMR and Glue that docs/reference/jobs.md names has this version.
PYTHON_VERSION = "3.11"
_DEAD_FOLDERS = ("bin", "share", "include", "pyarrow/include", "pyarrow/src", "boto3/examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPackages:
    """The files to upload. `scripts` are by the job's name. `dependencies` is None without an EMR application."""

    scripts: Mapping[str, Path]
    packages: Path
    requirements: Path
    dependencies: Path | None


def job_scripts(sources: Sources) -> dict[str, Path]:
    """Returns the jobs: every script of penstock_spark/scripts/, by its name."""
    return {path.stem: path for path in sorted(sources.scripts.glob("*.py")) if path.stem != "__init__"}


def job_packages(sources: Sources, *, settings: StageSettings) -> JobPackages:
    """Returns the files of the stage's jobs, and builds those whose inputs changed.

    Where the stage has an EMR application, the first build of the dependencies downloads about 100 MB.
    """
    return JobPackages(
        scripts=job_scripts(sources),
        packages=packages_zip(sources),
        requirements=JOBS_LOCK,
        dependencies=dependencies_zip(sources, settings=settings) if settings.emr_release else None,
    )


def packages_zip(sources: Sources) -> Path:
    """Builds the zip of Penstock's own packages, as `--py-files` takes it."""
    own = list(sources.files(*PACKAGES, suffix=".py"))
    content_hash = hash_of(*(part for name, path in own for part in (name.encode(), path.read_bytes())))
    target = sources.cache / "jobs" / f"packages-{content_hash[:16]}.zip"
    if not target.exists():
        with _work_folder(target) as work:
            for name, path in own:
                (work / "own" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, work / "own" / name)
            write_zip(work / "zip", work / "own")
            os.replace(work / "zip", target)
        keep_latest(target.parent.glob("packages-*.zip"))
    return target


def dependencies_zip(sources: Sources, *, settings: StageSettings) -> Path:
    """Builds the zip of the locked packages for the stage's processor and Python 3.11. Workers put it on PYTHONPATH.

    Raises RuntimeError with the end of pip's output if a package has no wheel for the platform.
    """
    key = hash_of(JOBS_LOCK.read_bytes(), Path(__file__).read_bytes(), repr(settings.pip_platforms).encode())[:16]
    target = sources.cache / "jobs" / f"dependencies-{key}.zip"
    if not target.exists():
        with _work_folder(target) as work:
            install_wheels(JOBS_LOCK, work / "site", python_version=PYTHON_VERSION, platforms=settings.pip_platforms)
            _prune(work / "site")
            write_zip(work / "zip", work / "site")
            os.replace(work / "zip", target)
        keep_latest(target.parent.glob("dependencies-*.zip"))
    return target


def _prune(folder: Path) -> None:
    """Removes tests, headers and other files that never run."""
    for dead in _DEAD_FOLDERS:
        shutil.rmtree(folder / dead, ignore_errors=True)
    for path in list(folder.rglob("*")):
        if path.is_dir() and path.name in ("tests", "__pycache__"):
            shutil.rmtree(path)
        elif path.is_file() and path.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            path.unlink()


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """Yields a folder next to the target, on the same file system: a finished zip can be renamed to the target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        yield Path(work)
