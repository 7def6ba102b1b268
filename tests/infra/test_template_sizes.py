"""CloudFormation takes the template of a stage with every switch on, and leaves room for what an app declares.

Source: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.conftest import EVERY_SWITCH

pytestmark = [pytest.mark.synth, pytest.mark.slow]

RESOURCES_MAX, OUTPUTS_MAX, BYTES_MAX = 500, 200, 1_000_000
OWN_RESOURCES_MAX = 333  # an app has room for 167: topics, share groups, subscriptions and rights
FUNCTIONS_MAX = 16


@pytest.mark.parametrize("row", EVERY_SWITCH, ids=map(str, EVERY_SWITCH))
def test_stage_with_every_switch_fits_into_a_stack(
    full_template: Callable[..., dict[str, Any]], row: tuple[str, ...]
) -> None:
    found = full_template(*row)
    assert len(found["Resources"]) <= OWN_RESOURCES_MAX < RESOURCES_MAX
    functions = [each for each in found["Resources"].values() if each["Type"] == "AWS::Lambda::Function"]
    assert len(functions) <= FUNCTIONS_MAX - 1  # and `provision`, for an app that declares something
    assert len(found["Outputs"]) <= OUTPUTS_MAX
    assert len(json.dumps(found)) <= BYTES_MAX
