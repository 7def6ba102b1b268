"""A stage of production with every kind of thing that a restore stops, deployed on moto.

A restore reads each of them, again and again. So most tests have one or two of each kind: `IS_WHOLE` marks the others.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployed_stage import REGION, DeployedStage, deployed_stage
from tests.support.service import SteppedClock, batch

IS_WHOLE = pytest.mark.parametrize("is_whole", [True])
"""For a test whose stage has all functions, rules and schedules."""
_LEFT_OUT = {
    "AWS::Lambda::Function": ("transactions", "groups", "promote", "hourly", "upkeep"),
    "AWS::Events::Rule": ("promote", "audit", "look-at-subscriptions", "clean"),
    "AWS::Scheduler::Schedule": ("archive", "sweep"),
}


@pytest.fixture
def is_whole() -> bool:
    """Whether the stage has all that the template has."""
    return False


@pytest.fixture
def clock() -> SteppedClock:
    """The clock of the command."""
    return SteppedClock()


@pytest.fixture
def deployed(
    template: dict[str, Any], is_whole: bool, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[DeployedStage]:
    """The stage, with 3 records in orders-0 at the second to which it comes back, and 5 more since.

    Commands run in a folder without an app.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("penstock.cli.restore.wall_clock_ms", clock.now_ms)
    monkeypatch.setattr("penstock.cli.restore._sleep_ms", clock.sleep_ms)
    with deployed_stage(template if is_whole else _part_of(template)) as deployed:
        monkeypatch.setattr("penstock.deployed.aws.client", deployed.client)
        deployed.stage.service.create("orders", 2)
        assert deployed.stage.service.produce(("orders", 0, batch("0", "1", "2"))).status == 200
        deployed.snapshot()
        assert deployed.stage.service.produce(("orders", 0, batch("3", "4", "5", "6", "7"))).status == 200
        yield deployed


def _part_of(template: dict[str, Any]) -> dict[str, Any]:
    def is_left_out(resource: dict[str, Any]) -> bool:
        properties = resource.get("Properties", {})
        name = str(properties.get("FunctionName", properties.get("Name"))).removeprefix("penstock-")
        return name in _LEFT_OUT.get(resource["Type"], ())

    resources = {name: each for name, each in template["Resources"].items() if not is_left_out(each)}
    return template | {"Resources": resources}
