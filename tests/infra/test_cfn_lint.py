"""cfn-lint holds the templates to CloudFormation's own schemas: types, properties, enums, and regions."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]  # cfn-lint has no types

pytestmark = [pytest.mark.synth, pytest.mark.slow]
# W3005 tells of a DependsOn that a reference implies. The CDK writes them, and they do no harm.
PASSED_OVER = ("W3005",)


@pytest.mark.parametrize(
    ("name", "region"),
    [("dev@eu-central-1", "eu-central-1"), ("prod", "us-east-1"), ("prod@eu-west-1", "eu-west-1")],
)
def test_template_is_one_that_cloudformation_takes(
    template: Callable[[str], dict[str, Any]], name: str, region: str
) -> None:
    found = lint(json.dumps(template(name)), config=ManualArgs(regions=[region], ignore_checks=list(PASSED_OVER)))
    assert [f"{each.rule.id} {each.path}: {each.message}" for each in found] == []
