"""The functions' asset: complete, small, compiled, and named by its inputs."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Annotations, Match
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ParamValidationError
from botocore.model import Shape

from penstock_cdk import shipment
from penstock_cdk.assets import PACKAGES, SERVICES, Asset, _find_python, functions_asset, shrink
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
def test_cdk_says_so_when_the_functions_have_no_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_python: bool
) -> None:
    built = Asset(path=tmp_path, content_hash="0" * 64, is_compiled=has_python)
    monkeypatch.setattr(shipment, "functions_asset", lambda sources, *, settings: built)
    monkeypatch.setattr(shipment, "job_packages", lambda sources, *, settings: None)
    stack = Stack()
    shipment.built_shipment(stack, StageSettings(name="shop"))
    told = Match.string_like_regexp("python3.14 is not on the PATH.*uv python install 3.14.*-c python_version=")
    assert len(Annotations.from_stack(stack).find_warning("*", told)) == (not has_python)


def test_python_that_is_neither_this_one_nor_on_the_path_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert _find_python(f"{sys.version_info.major}.{sys.version_info.minor}") == sys.executable
    assert _find_python("3.99") is None


class _SentError(Exception):
    """The request is ready to go."""


WHOLE = Path(botocore.__file__).parent / "data"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """botocore's data of the services, and of one that no function calls, after `shrink`."""
    data = tmp_path_factory.mktemp("botocore") / "data"
    data.mkdir()
    for entry in WHOLE.iterdir():
        if entry.is_file():
            shutil.copyfile(entry, data / entry.name)
        elif entry.name in {*SERVICES, "sns"}:
            shutil.copytree(entry, data / entry.name)
    shrink(data)
    return data


def _api(folder: Path, service: str, kind: str) -> Any:
    session = botocore.session.Session()
    session.set_config_variable("data_path", str(folder))
    loader = session.get_component("data_loader")
    loader._search_paths = [str(folder)]  # neither the user's folder nor botocore's own
    return loader.load_service_model(service, kind)


def _required(shape: Shape | None) -> Any:
    """The smallest arguments of a shape: texts and lists of one element."""
    if shape is None:
        return {}
    if shape.type_name == "structure":
        return {name: _required(shape.members[name]) for name in shape.required_members}
    if shape.type_name == "list":
        return [_required(shape.member)]
    return {"map": {}, "string": "text-text-text-text-text", "boolean": True, "blob": b"b"}.get(shape.type_name, 1)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["documentation"]] if isinstance(value.get("documentation"), str) else []
        return own + [text for each in value.values() for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name != "documentation" or not isinstance(each, str)}
        return {name: _without_texts(each) for name, each in kept.items()}
    return [_without_texts(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("service", sorted(SERVICES))
@pytest.mark.parametrize("kind", ["service-2", "endpoint-rule-set-1"])
def test_services_are_as_botocore_describes_them_but_for_prose(data: Path, service: str, kind: str) -> None:
    whole, shrunk = _api(WHOLE, service, kind), _api(data, service, kind)
    parameters = whole.pop("clientContextParams", None), shrunk.pop("clientContextParams", None)
    assert parameters[0] == parameters[1]
    assert _texts(shrunk) == []
    assert json.dumps(shrunk, sort_keys=True) == json.dumps(_without_texts(whole), sort_keys=True)


def test_other_services_and_packed_files_are_gone(data: Path) -> None:
    assert {entry.name for entry in data.iterdir() if entry.is_dir()} == SERVICES
    assert list(data.rglob("*.gz")) == []


def test_endpoints_have_every_partition_and_the_services_that_are_called(data: Path) -> None:
    whole = json.loads((WHOLE / "endpoints.json").read_bytes())["partitions"]
    shrunk = json.loads((data / "endpoints.json").read_bytes())["partitions"]
    assert [each["regions"] for each in shrunk] == [each["regions"] for each in whole]
    for before, after in zip(whole, shrunk, strict=True):
        assert after["services"] == {name: each for name, each in before["services"].items() if name in SERVICES}


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_every_operation_finds_its_endpoint_and_writes_its_request(data: Path, service: str) -> None:
    session = botocore.session.Session()
    session.get_component("data_loader")._search_paths = [str(data)]
    session.set_credentials("key", "secret")
    client = session.create_client(service, region_name="eu-west-1")
    sent: list[str] = []

    def answered(request: AWSRequest, **_: object) -> None:
        sent.append(request.url)
        raise _SentError

    client.meta.events.register("before-send", answered)
    for name in client.meta.service_model.operation_names:
        model = client.meta.service_model.operation_model(name)
        with suppress(ParamValidationError, _SentError):
            client._make_api_call(name, _required(model.input_shape))
        assert model.output_shape is None or model.output_shape.members is not None
    assert sent
