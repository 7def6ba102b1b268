"""cdk-nag's AwsSolutions rules: no violation is open, and every exception has a reason."""

from collections.abc import Callable

import pytest
from aws_cdk import Stack
from cdk_nag import AwsSolutionsChecks

pytestmark = pytest.mark.synth


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_aws_solutions_rules_hold(make_stack: Callable[[str], Stack], stage: str) -> None:
    report = AwsSolutionsChecks().validate_scope(make_stack(stage))
    found = [
        f"{violation.rule_name}: {[resource.construct_path for resource in violation.violating_resources]}"
        for violation in report.violations
    ]
    assert not found
