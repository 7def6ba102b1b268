import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ParamValidationError
from botocore.model import Shape

from penstock_cdk.assets import SERVICES, shrink


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
