"""The functions' asset: complete, small, compiled, and named by its inputs."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Annotations, Match

from penstock_cdk import shipment
from penstock_cdk.assets import PACKAGES, Asset, _find_python, functions_asset
from penstock_cdk.settings import FUNCTION_SIZES, StageSettings, settings_of
from penstock_cdk.sources import Sources, installed_sources
from tests.support.wire import LAMBDA_ENVIRONMENT

pytestmark = pytest.mark.synth

SOURCES = installed_sources()
NAMES = (*FUNCTION_SIZES,)
MB = 1_000_000


@pytest.fixture(scope="module")
def asset() -> Asset:
    return functions_asset(SOURCES, settings=settings_of("local"))


@pytest.fixture
def copied(tmp_path: Path) -> Sources:
    """A copy of the same sources, made at another time. It shares the built dependencies."""
    for name in PACKAGES:
        shutil.copytree(SOURCES.packages[name], tmp_path / name, copy_function=shutil.copyfile)
    return Sources(packages={name: tmp_path / name for name in PACKAGES}, cache=SOURCES.cache)


def test_every_handler_loads_from_the_asset_alone(asset: Asset, tmp_path: Path) -> None:
    with zipfile.ZipFile(asset.path) as archive:
        archive.extractall(tmp_path)
    imports = "; ".join(f"import penstock_handlers.{name}; penstock_handlers.{name}.handler" for name in NAMES)
    # In Lambda, the import makes the clients of DynamoDB and S3. Clients read botocore's data from the asset.
    clients = (
        "import botocore.session; session = botocore.session.get_session(); "
        "[session.create_client(name, region_name='us-east-1') for name in ('cloudformation', 'events', 'lambda', "
        "'sqs', 'sts')]"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {imports}; {clients}"
    environment = {"PATH": os.environ["PATH"], **LAMBDA_ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("function", ["produce", "fetch"])
def test_function_that_carries_records_loads_no_heavy_library_from_the_asset(
    asset: Asset, tmp_path: Path, function: str
) -> None:
    with zipfile.ZipFile(asset.path) as archive:
        archive.extractall(tmp_path)
    libraries_of_aws = ("botocore.client", "botocore.exceptions", "botocore.session", "urllib3")
    heavy = (*libraries_of_aws, "argparse", "importlib.metadata", "pydantic", "zipfile")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import penstock_handlers.{function}; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        env={"PATH": os.environ["PATH"], **LAMBDA_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_asset_has_no_dead_weight(asset: Asset) -> None:
    assert asset.path.stat().st_size < 16 * MB
    with zipfile.ZipFile(asset.path) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        assert sum(entry.file_size for entry in archive.infolist()) < 50 * MB
    services = {name.split("/")[2] for name in names if name.startswith("botocore/data/")}
    assert {name for name in services if "." not in name} == {
        "cloudformation",
        "dynamodb",
        "events",
        "lambda",
        "s3",
        "sqs",
        "sts",
    }
    assert not [name for name in names if "/tests/" in name]


def test_modules_are_compiled_and_files_have_no_times(asset: Asset) -> None:
    with zipfile.ZipFile(asset.path) as archive:
        names = set(archive.namelist())
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    for module in (name for name in names if name.startswith("penstock_handlers/") and name.endswith(".py")):
        folder, _, file = module.rpartition("/")
        assert f"{folder}/__pycache__/{file[:-3]}.{sys.implementation.cache_tag}.pyc" in names


def test_hash_is_of_the_sources_alone(asset: Asset, copied: Sources) -> None:
    assert functions_asset(copied, settings=settings_of("local")).content_hash == asset.content_hash
    (copied.packages["penstock_handlers"] / "topics.py").write_text("handler = None\n")
    changed = functions_asset(copied, settings=settings_of("local"))
    assert changed.content_hash != asset.content_hash
    assert changed.path.exists()
    changed.path.unlink()


@pytest.mark.minutes
def test_libraries_of_the_cloud_s_asset_are_for_its_processor(tmp_path: Path) -> None:
    settings = settings_of("prod")
    with zipfile.ZipFile(functions_asset(SOURCES, settings=settings).path) as archive:
        libraries = {name: archive.read(name)[:20] for name in archive.namelist() if name.endswith(".so")}
    assert len(libraries) >= 5
    # ELF's e_machine: 183 is AArch64 (System V ABI).
    assert {int.from_bytes(header[18:20], "little") for header in libraries.values()} == {183}
    tag = f"cpython-{settings.python_version.replace('.', '')}-"
    assert all(tag in name or ".abi3." in name for name in libraries)


@pytest.mark.parametrize("has_python", [True, False])
def test_cdk_refuses_functions_without_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_python: bool
) -> None:
    built = Asset(path=tmp_path, content_hash="0" * 64, is_compiled=has_python)
    monkeypatch.setattr(shipment, "functions_asset", lambda sources, *, settings: built)
    monkeypatch.setattr(shipment, "job_packages", lambda sources, *, settings: None)
    stack = Stack()
    shipment.built_shipment(stack, StageSettings(name="shop"))
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    told = Match.string_like_regexp(f"python3.14 is not on the PATH.*uv python install 3.14.*-c python_version={own}`")
    assert len(Annotations.from_stack(stack).find_error("*", told)) == (not has_python)


def test_python_that_is_neither_this_one_nor_on_the_path_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert _find_python(f"{sys.version_info.major}.{sys.version_info.minor}") == sys.executable
    assert _find_python("3.99") is None
