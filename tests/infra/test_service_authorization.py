"""Each grant of the templates is one that AWS knows: its actions, their resources, and their condition keys.

The policies that the docs publish: each statement is one that AWS knows, and names what a stage has.
"""

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ParamValidationError
from botocore.loaders import JSONFileLoader
from botocore.model import Shape

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Penstock
from penstock_cdk.assets import SERVICES, shrink
from penstock_cdk.settings import STAGES
from penstock_core.routes import ROUTES_OF_ALIAS, functions_of
from tests.infra.as_deployed import Deployed
from tests.infra.conftest import EVERY_SWITCH
from tests.infra.service_authorization import mistakes
from tests.infra.templates import as_list

NAMESPACE = "arn:aws:appsync:eu-west-1:123456789012:apis/abc/channelNamespace/wake"


def _statement(action: str, resource: str | list[str], **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("appsync:EventPublish", NAMESPACE),
        ("appsync:EventConnect", "arn:aws:appsync:eu-west-1:123456789012:apis/abc"),
        ("s3:GetObject", "arn:aws:s3:::bucket/*"),
        ("logs:PutLogEvents", "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/a:*"),
        ("execute-api:Invoke", "arn:aws:execute-api:eu-west-1:123456789012:abc/$default/GET/v1/topics/*"),
        ("lambda:ListEventSourceMappings", "*"),
    ],
)
def test_grant_that_aws_knows_has_no_mistake(action: str, resource: str) -> None:
    assert list(mistakes(_statement(action, resource))) == []


@pytest.mark.parametrize(
    ("action", "resource", "told"),
    [
        ("appsync:EventPublish", f"{NAMESPACE}/*", "asks for"),
        ("appsync:EventSubscribe", f"{NAMESPACE}/0123/*", "asks for"),
        ("appsync:EventConnect", NAMESPACE, "asks for"),
        ("s3:GetObject", "arn:aws:s3:::bucket", "asks for"),
        ("sqs:SendMessageBatch", "arn:aws:sqs:eu-west-1:123456789012:queue", "is no action"),
        ("sqs:sendmessage", "arn:aws:sqs:eu-west-1:123456789012:queue", "is no action"),
        ("lambda:ListEventSourceMappings", "arn:aws:lambda:eu-west-1:123456789012:function:a", "no resources to name"),
    ],
)
def test_grant_that_aws_would_never_find_true_is_told(action: str, resource: str, told: str) -> None:
    assert told in " ".join(mistakes(_statement(action, resource)))


def test_resource_that_no_action_has_and_unknown_keys_are_told() -> None:
    other = "arn:aws:sqs:eu-west-1:123456789012:queue"
    assert list(mistakes(_statement("appsync:EventPublish", [NAMESPACE, other]))) == [
        f"{other} is a resource of none of appsync:EventPublish"
    ]
    condition = {"StringEquals": {"dynamodb:LeadingKeys": "a", "aws:SourceVpce": "vpce-1"}}
    assert list(mistakes(_statement("sqs:SendMessage", other, Condition=condition))) == [
        "sqs:SendMessage knows no condition key dynamodb:LeadingKeys"
    ]


def _mistakes_of(template: dict[str, Any], region: str) -> list[str]:
    return [
        f"{policy.holder}: {mistake}"
        for policy in Deployed(template=template, region=region).policies()
        if policy.kind != "trust"
        for statement in policy.document["Statement"]
        for mistake in mistakes(statement)
    ]


@pytest.mark.synth
@pytest.mark.parametrize("stage", ["local", "dev@eu-central-1", "prod", "prod@eu-west-1"])
def test_each_grant_of_a_stage_is_one_that_aws_knows(template: Callable[[str], dict[str, Any]], stage: str) -> None:
    assert _mistakes_of(template(stage), "us-east-1") == []


@pytest.mark.synth
@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY_SWITCH, ids=map(str, EVERY_SWITCH))
def test_each_grant_of_a_stage_with_every_switch_is_one_that_aws_knows(
    full_template: Callable[..., dict[str, Any]], row: tuple[str, ...]
) -> None:
    assert _mistakes_of(full_template(*row), row[2]) == []


@pytest.mark.synth
@pytest.mark.slow
def test_template_for_china_names_no_other_partition(full_template: Callable[..., dict[str, Any]]) -> None:
    [row] = [row for row in EVERY_SWITCH if row[2].startswith("cn-")]
    assert "arn:aws:" not in json.dumps(full_template(*row))


@pytest.mark.synth
def test_each_grant_that_an_app_makes_is_one_that_aws_knows(tmp_path: Path) -> None:
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
    settings = STAGES["prod"]
    queue = Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path), direct=True)
    orders = queue.topic("orders")
    role = iam.Role(stack, "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    orders.grant_produce(role)
    orders.grant_consume(role, group="billing")
    queue.share_group("workers", [orders]).grant_consume(role)
    queue.grant_admin(role)
    queue.grant_direct(role, "produce", "consume", "transact", "admin")
    assert _mistakes_of(dict(Template.from_stack(stack).to_json()), "eu-west-1") == []


DOCS = Path(__file__).parents[2] / "docs" / "how-to"
ENCRYPT, NETWORK = DOCS / "encrypt.md", DOCS / "private-network.md"
_FENCE = re.compile(r"```json\n(.*?)```", re.DOTALL)


def statements_of(page: Path) -> Iterator[dict[str, Any]]:
    for fence in _FENCE.findall(page.read_text(encoding="utf-8")):
        document = json.loads(fence)
        yield from as_list(document.get("Statement", document) if isinstance(document, dict) else document)


@pytest.mark.parametrize("page", [ENCRYPT, NETWORK], ids=lambda page: page.stem)
def test_each_statement_is_one_that_aws_knows(page: Path) -> None:
    found = [*statements_of(page)]
    assert found
    assert [mistake for each in found for mistake in mistakes(each)] == []


def test_role_of_a_consumer_names_the_aliases_of_consumers() -> None:
    [consumer] = [each for each in statements_of(NETWORK) if "aws:SourceVpce" in json.dumps(each)]
    named = {resource.partition(":function:")[2] for resource in consumer["Resource"]}
    assert named == {f"penstock-{name}:direct-consume" for name in functions_of("direct-consume")}


def test_page_names_the_functions_of_producers_and_transactions() -> None:
    text = " ".join(NETWORK.read_text(encoding="utf-8").split())
    for alias in ROUTES_OF_ALIAS:
        first, *others = functions_of(alias)
        if alias in ("direct-produce", "direct-transact"):
            assert f"`{alias}` on `{first}` and {' and '.join(f'`{each}`' for each in others)}" in text


@pytest.mark.synth
@pytest.mark.parametrize("stage", ["prod", "prod@eu-central-1"])
def test_endpoints_let_through_all_that_a_function_does_on_tables_and_buckets(
    template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    """Of the functions that answer clients: those are the ones which a program embeds."""
    let_through = {action for each in statements_of(NETWORK) for action in as_list(each["Action"])}
    deployed = Deployed(template=template(stage), region="us-east-1")
    embedded = {function for alias in ROUTES_OF_ALIAS for function in functions_of(alias)}
    roles = tuple(f"Functions{name.title()}Role" for name in embedded)
    used = {
        action
        for policy in deployed.policies()
        if policy.kind == "inline" and policy.holder.startswith(roles)
        for statement in policy.document["Statement"]
        for action in as_list(statement["Action"])
        if action.partition(":")[0] in ("dynamodb", "s3", "s3express")
    }
    assert used
    assert used <= let_through


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


class _Files(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """Reads each file anew: `tests/conftest.py` keeps what a process has read, and clients of other tests change it."""

    def load_file(self, file_path: str) -> Any:
        for extension, opened in (".json", open), (".json.gz", gzip.open):
            if (path := Path(file_path + extension)).is_file():
                with opened(path, "rb") as file:
                    return json.load(file)
        return None


def _api(folder: Path, service: str, kind: str) -> Any:
    session = botocore.session.Session()
    session.set_config_variable("data_path", str(folder))
    loader = session.get_component("data_loader")
    loader._search_paths = [str(folder)]  # neither the user's folder nor botocore's own
    loader.file_loader = _Files()
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
