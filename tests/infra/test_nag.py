"""cdk-nag's AwsSolutions rules: no violation is open, and every exception has a reason."""

from collections.abc import Callable

import pytest
from cdk_nag import AwsSolutionsChecks

from penstock_cdk.stack import PenstockStack

pytestmark = pytest.mark.synth


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_aws_solutions_rules_hold(make_stack: Callable[[str], PenstockStack], stage: str) -> None:
    report = AwsSolutionsChecks().validate_scope(make_stack(stage))
    found = [
        f"{violation.rule_name}: {[resource.construct_path for resource in violation.violating_resources]}"
        for violation in report.violations
    ]
    assert not found
