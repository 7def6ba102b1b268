"""The functions' code with its dependencies as one zip, built by pip without Docker for the platform of the stage.

pip installs the dependencies of locks/lambda.txt by hash. The build removes files that never run, and most of
botocore's data. It keeps the dependencies under .penstock/assets/, once per lock file and
platform.

The build compiles all modules, because Lambda cannot keep bytecode: a cold start then imports for 0.3 s, not 0.9 s.
This takes the stage's version of Python on this machine. Without it, the asset holds sources only. The hash that names
the asset covers its inputs, so the same sources make the same asset on every such machine.

botocore describes 400 services, and most of each description is prose. A cold start reads and parses what it needs of
it. The build keeps what a client reads: operations, shapes, and the rules that find an endpoint.
"""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_cdk.settings import StageSettings
from penstock_cdk.sources import FUNCTIONS_LOCK, Sources

PACKAGES = ("penstock_core", "penstock_service", "penstock_handlers")

_DEAD_FOLDERS = (
    "bin",
    "boto3/data",
    "boto3/examples",
    "pydantic/v1",  # the old API, which Penstock does not call
    "wrapt-stubs",
    "aws_lambda_powertools/event_handler/openapi/swagger_ui",
)
_DEAD_SUFFIXES = (".pyi", ".pyx", ".pxd", ".c", ".h", ".typed", "examples-1.json", "examples-1.json.gz")
_DEAD_NAMES = ("RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json")
# crc32c's own loads the metadata of packages, and an argument parser, before its one function.
_LIGHT_MODULES = {"crc32c/__init__.py": "from ._crc32c import crc32c as crc32c\n"}
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_KEPT = 4
# botocore loads these for its clients of CloudFormation, DynamoDB, EventBridge, Lambda, S3, SQS and STS.
SERVICES = frozenset(("cloudformation", "dynamodb", "events", "lambda", "s3", "sqs", "sts"))
_ENDPOINTS = "endpoints.json"
_FILES = frozenset((_ENDPOINTS, "partitions.json", "_retry.json", "sdk-default-configuration.json"))
_PROSE = "documentation"
_READ_WITH_PROSE = "clientContextParams"  # botocore reads the texts of these, to no end


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A zip file, the hash of its inputs, and whether it holds bytecode."""

    path: Path
    content_hash: str
    is_compiled: bool


def functions_asset(sources: Sources, *, settings: StageSettings) -> Asset:
    """Returns the asset of a stage, and builds it first if its inputs changed.

    The first build downloads the dependencies (about 15 s). Later builds add Penstock's own packages to them (0.3 s).
    Raises RuntimeError with the end of pip's output if a dependency has no wheel for the platform.
    """
    python = _find_python(settings.python_version)
    target = (settings.python_version, settings.architecture, settings.pip_platforms or sys.platform, bool(python))
    dependencies_key = hash_of(FUNCTIONS_LOCK.read_bytes(), Path(__file__).read_bytes(), repr(target).encode())[:16]
    own = list(sources.files(*PACKAGES))
    content_hash = hash_of(
        dependencies_key.encode(), *(part for name, path in own for part in (name.encode(), path.read_bytes()))
    )
    folder = sources.cache / dependencies_key
    asset = folder / f"{content_hash}.zip"
    if not asset.exists():
        dependencies = folder / "packages.zip"
        if not dependencies.exists():
            _build_dependencies(dependencies, settings=settings, python=python)
        _add_sources(dependencies, own, asset, python=python)
        keep_latest(folder.glob("[0-9a-f]*.zip"))
        keep_latest(folder.parent.iterdir())
    return Asset(path=asset, content_hash=content_hash, is_compiled=python is not None)


def _find_python(version: str) -> str | None:
    """Returns an interpreter of that minor version: this one, or one on the PATH."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    return shutil.which(f"python{version}")


def hash_of(*parts: bytes) -> str:
    """Returns the SHA-256 of the parts and of their lengths, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _build_dependencies(target: Path, *, settings: StageSettings, python: str | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        folder = Path(work) / "site"
        install_wheels(FUNCTIONS_LOCK, folder, python_version=settings.python_version, platforms=settings.pip_platforms)
        _prune(folder)
        _compile(folder, python)
        write_zip(Path(work) / "zip", folder)
        os.replace(Path(work) / "zip", target)


def _add_sources(dependencies: Path, sources: list[tuple[str, Path]], target: Path, *, python: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        folder = Path(work) / "own"
        for name, path in sources:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
        _compile(folder, python)
        shutil.copyfile(dependencies, Path(work) / "zip")
        write_zip(Path(work) / "zip", folder)
        os.replace(Path(work) / "zip", target)


def install_wheels(lock: Path, folder: Path, *, python_version: str, platforms: tuple[str, ...] | None) -> None:
    """Installs the locked packages into a folder, for the version of Python and the platforms. None: this machine.

    Raises RuntimeError with the end of pip's output if the installation fails.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--require-hashes"]
    command += ["--only-binary=:all:", "--target", str(folder), "-r", str(lock)]
    if platforms is not None:
        command += ["--implementation", "cp", "--python-version", python_version]
        command += [part for tag in platforms for part in ("--platform", tag)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command line
    if done.returncode != 0:
        platform = ", ".join(platforms or ("this machine",))
        raise RuntimeError(f"pip cannot install {lock} for {platform}:\n{done.stderr.strip()[-2000:]}")


def _prune(folder: Path) -> None:
    for dead in _DEAD_FOLDERS:
        shutil.rmtree(folder / dead, ignore_errors=True)
    shrink(folder / "botocore/data")
    for name, text in _LIGHT_MODULES.items():
        (folder / name).write_text(text)
    for path in list(folder.rglob("*")):
        if path.is_dir() and path.name in ("tests", "__pycache__"):
            shutil.rmtree(path)
        elif path.is_file() and (path.name in _DEAD_NAMES or path.name.endswith(_DEAD_SUFFIXES)):
            path.unlink()


def _compile(folder: Path, python: str | None) -> None:
    """Writes bytecode for each module. Python takes it without a look at the source's time (unchecked hash)."""
    if python is not None:
        command = [python, "-m", "compileall", "-q", "-s", str(folder), "--invalidation-mode", "unchecked-hash"]
        subprocess.run([*command, str(folder)], check=True)  # noqa: S603  # our own command line


def write_zip(target: Path, folder: Path) -> None:
    """Adds the files of a folder to a zip, without their times and owners."""
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), date_time=_ZIP_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())


def keep_latest(paths: Iterable[Path]) -> None:
    """Removes all paths but the latest `_KEPT`, because another synthesis may read one of these."""
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def shrink(data: Path) -> None:
    """Removes what no client of `SERVICES` reads from the folder `botocore/data`."""
    for entry in data.iterdir():
        if entry.name not in SERVICES | _FILES:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path in list(data.rglob("*.json.gz")):
        with gzip.open(path) as packed:
            _write(path.with_suffix(""), _without_prose(json.load(packed)))
        path.unlink()
    endpoints = json.loads((data / _ENDPOINTS).read_bytes())
    for partition in endpoints["partitions"]:
        partition["services"] = {name: each for name, each in partition["services"].items() if name in SERVICES}
    _write(data / _ENDPOINTS, endpoints)


def _without_prose(value: Any) -> Any:
    """The value without its texts `documentation`. A member or a shape of that name stays: it is no text."""
    if isinstance(value, dict):
        return {
            name: each if name == _READ_WITH_PROSE else _without_prose(each)
            for name, each in value.items()
            if not (name == _PROSE and isinstance(each, str))
        }
    return [_without_prose(each) for each in value] if isinstance(value, list) else value


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")))
