"""IAM takes each policy of a stage with every switch on, the longest name, and the longest region.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html. IAM counts no white space. It raises
the quota of trust policies only, and CloudFormation rolls the whole stack back if a policy is too long.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.as_deployed import Deployed
from tests.infra.conftest import EVERY_SWITCH

pytestmark = [pytest.mark.synth, pytest.mark.slow]

CHARACTERS_MAX = {"managed": 6_144, "inline": 10_240, "trust": 2_048}  # inline: all of a role together


@pytest.mark.parametrize("row", EVERY_SWITCH, ids=map(str, EVERY_SWITCH))
def test_no_policy_is_longer_than_iam_takes(full_template: Callable[..., dict[str, Any]], row: tuple[str, ...]) -> None:
    region = row[2]
    deployed = Deployed(template=full_template(*row), region=region, partition=_partition(region))
    sizes = Counter[tuple[str, str]]()
    for policy in deployed.policies():
        sizes[policy.kind, policy.holder] += len(re.sub(r"\s", "", json.dumps(policy.document, separators=(",", ":"))))
    assert {kind for kind, _ in sizes} == {*CHARACTERS_MAX}
    assert {name: size for name, size in sizes.items() if size > CHARACTERS_MAX[name[0]]} == {}


def _partition(region: str) -> str:
    return "aws-cn" if region.startswith("cn-") else "aws"
