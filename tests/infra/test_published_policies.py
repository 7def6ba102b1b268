"""The policies that the docs publish: each statement is one that AWS knows, and names what a stage has."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_core.routes import ROUTES_OF_ALIAS, functions_of
from tests.infra.as_deployed import Deployed
from tests.infra.service_authorization import mistakes
from tests.infra.templates import as_list

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
