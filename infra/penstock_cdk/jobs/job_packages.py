"""The files that Spark jobs are sent with: their scripts, Penstock's own packages as a zip, and their dependencies.

The packages are pure Python, which Spark and Glue import from the zip. The dependencies hold native code, which Python
cannot import from a zip. EMR Serverless unpacks them from a second zip (`spark.archives`), which this module builds
without Docker for the application's processor. Glue installs requirements/jobs.txt by hash when a job starts.

A hash of its inputs names each zip, and a zip holds no times, so the same sources make the same zip on every machine.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock_cdk.assets import CACHE_FOLDER, hash_of, install_wheels, keep_latest, write_zip
from penstock_cdk.settings import StageSettings

LOCK_FILE = Path("requirements/jobs.txt")
SCRIPTS_FOLDER = Path("glue_jobs")
PACKAGES: Mapping[str, Path] = {
    "penstock_core": Path("functions/penstock_core"),
    "penstock_service": Path("functions/penstock_service"),
    "penstock": Path("sdk/penstock"),
    "penstock_spark": Path("glue_jobs/penstock_spark"),
}
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


def job_scripts(root: Path) -> dict[str, Path]:
    """Returns the jobs: every script of glue_jobs/, by its name."""
    return {path.stem: path for path in sorted((root / SCRIPTS_FOLDER).glob("*.py"))}


def job_packages(root: Path, *, settings: StageSettings) -> JobPackages:
    """Returns the files of the stage's jobs, and builds those whose inputs changed.

    Where the stage has an EMR application, the first build of the dependencies downloads about 100 MB.
    """
    return JobPackages(
        scripts=job_scripts(root),
        packages=packages_zip(root),
        requirements=root / LOCK_FILE,
        dependencies=dependencies_zip(root, settings=settings) if settings.emr_release else None,
    )


def packages_zip(root: Path) -> Path:
    """Builds the zip of Penstock's own packages, as `--py-files` takes it."""
    sources = list(_sources(root))
    content_hash = hash_of(*(part for name, path in sources for part in (name.encode(), path.read_bytes())))
    target = root / CACHE_FOLDER / "jobs" / f"packages-{content_hash[:16]}.zip"
    if not target.exists():
        with _work_folder(target) as work:
            for name, path in sources:
                (work / "own" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, work / "own" / name)
            write_zip(work / "zip", work / "own")
            os.replace(work / "zip", target)
        keep_latest(target.parent.glob("packages-*.zip"))
    return target


def dependencies_zip(root: Path, *, settings: StageSettings) -> Path:
    """Builds the zip of the locked packages for the stage's processor and Python 3.11. Workers put it on PYTHONPATH.

    Raises RuntimeError with the end of pip's output if a package has no wheel for the platform.
    """
    lock = root / LOCK_FILE
    key = hash_of(lock.read_bytes(), Path(__file__).read_bytes(), repr(settings.pip_platforms).encode())[:16]
    target = root / CACHE_FOLDER / "jobs" / f"dependencies-{key}.zip"
    if not target.exists():
        with _work_folder(target) as work:
            install_wheels(lock, work / "site", python_version=PYTHON_VERSION, platforms=settings.pip_platforms)
            _prune(work / "site")
            write_zip(work / "zip", work / "site")
            os.replace(work / "zip", target)
        keep_latest(target.parent.glob("dependencies-*.zip"))
    return target


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            yield f"{package}/{path.relative_to(root / folder).as_posix()}", path


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
    """Yields a folder beside the target, on the same file system: a finished zip can be renamed to the target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        yield Path(work)
