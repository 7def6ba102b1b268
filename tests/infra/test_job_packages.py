"""The files of jobs: complete, reproducible, and importable by a Python without other packages."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock_cdk.jobs.job_packages import (
    PACKAGES,
    dependencies_zip,
    job_packages,
    job_scripts,
    packages_zip,
)
from penstock_cdk.settings import settings_of
from penstock_cdk.sources import JOBS_LOCK, Sources, installed_sources

SOURCES = installed_sources()
DATA_OF_BOTO = "[boto3.client(name, region_name='us-east-1') for name in ('dynamodb', 's3', 'sqs', 'cloudformation')]"
MODULES = (
    "penstock_core.records.record_batch", "penstock_service.adapters.aws", "penstock_spark.job",
    "penstock_spark.storage", "penstock_spark.sweeping", "penstock.producer",
)  # fmt: skip


@pytest.fixture
def copied(tmp_path: Path) -> Sources:
    """A copy of the same sources, made at another time."""
    for name, folder in SOURCES.packages.items():
        shutil.copytree(folder, tmp_path / name, copy_function=shutil.copyfile)
    return Sources(packages={name: tmp_path / name for name in SOURCES.packages}, cache=tmp_path / "assets")


def run_clean(program: str, *paths: Path) -> None:
    """Runs the program in a Python that finds only modules of the standard library and of these places."""
    places = "; ".join(f"sys.path.insert(0, {str(path)!r})" for path in paths)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; {places}; {program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_packages_are_the_same_bytes_wherever_they_are_made(copied: Sources) -> None:
    own, other = packages_zip(SOURCES), packages_zip(copied)
    assert own.name == other.name
    assert own.read_bytes() == other.read_bytes()
    (copied.packages["penstock_spark"] / "job.py").write_text("changed = True\n")
    assert packages_zip(copied).name != own.name


def test_packages_hold_every_module_and_nothing_else() -> None:
    with zipfile.ZipFile(packages_zip(SOURCES)) as archive:
        names = set(archive.namelist())
    for package in PACKAGES:
        folder = SOURCES.packages[package]
        expected = {f"{package}/{path.relative_to(folder)}" for path in folder.rglob("*.py")}
        assert {name for name in names if name.startswith(f"{package}/")} == expected
    assert {name.split("/")[0] for name in names} == set(PACKAGES)


def test_pure_packages_import_from_the_zip_itself() -> None:
    """Spark puts the zip on the path. Modules of the core that need no other library must load from it."""
    run_clean(
        'import penstock_core.storage.keys as keys, penstock_core.log.ref; keys.parse_folder("07/")',
        packages_zip(SOURCES),
    )


def test_stage_without_an_application_builds_no_dependencies(copied: Sources) -> None:
    found = job_packages(copied, settings=settings_of("local"))
    assert found.dependencies is None
    assert found.scripts == job_scripts(copied)
    assert found.requirements.read_bytes() == JOBS_LOCK.read_bytes()


@pytest.mark.minutes
def test_dependencies_are_unpacked_and_imported_beside_the_packages(tmp_path: Path) -> None:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the dependencies are for Python 3.11")
    with zipfile.ZipFile(dependencies_zip(SOURCES, settings=settings_of("local"))) as archive:
        archive.extractall(tmp_path)
    imports = "; ".join(f"import {module}" for module in (*MODULES, "pyarrow.parquet", "pandas", "pyiceberg.catalog"))
    run_clean(f"{imports}; import boto3; {DATA_OF_BOTO}", packages_zip(SOURCES), tmp_path)


@pytest.mark.minutes
def test_dependencies_of_the_cloud_are_for_its_processor() -> None:
    with zipfile.ZipFile(dependencies_zip(SOURCES, settings=settings_of("prod"))) as archive:
        libraries = [archive.read(name)[:20] for name in archive.namelist() if name.endswith(".so")]
    assert len(libraries) > 50
    # ELF's e_machine: 183 is AArch64 (System V ABI).
    assert {int.from_bytes(header[18:20], "little") for header in libraries} == {183}
