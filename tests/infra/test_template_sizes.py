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
ROOM = 25  # resources: topics, share groups, subscriptions and rights of an app


@pytest.mark.parametrize("row", EVERY_SWITCH, ids=map(str, EVERY_SWITCH))
def test_stage_with_every_switch_fits_into_a_stack(
    full_template: Callable[..., dict[str, Any]], row: tuple[str, ...]
) -> None:
    found = full_template(*row)
    assert len(found["Resources"]) <= RESOURCES_MAX - ROOM
    assert len(found["Outputs"]) <= OUTPUTS_MAX
    assert len(json.dumps(found)) <= BYTES_MAX
