"""A stage of production with every kind of thing that a restore stops, deployed on moto."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Template

from bench.bill.synthesized import stack_of
from penstock_cdk.settings import STAGES
from penstock_cdk.walls import reserved_concurrency
from tests.support.deployed_stage import REGION, DeployedStage, deployed_stage
from tests.support.service import SteppedClock, batch


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The template of `prod` with walls, and one schedule of a job that is on."""
    settings = replace(
        STAGES["prod"],
        region=REGION,
        storage_profile="standard1",
        account_concurrency=1_000,
        reserved_concurrency=reserved_concurrency(1_000),
        scheduled_jobs=frozenset({"compact"}),
        timers_always_on=True,
        super_principals=("arn:aws:iam::123456789012:role/operators",),
    )
    return dict(Template.from_stack(stack_of(settings, tmp_path_factory.mktemp("prod"))).to_json())


@pytest.fixture
def clock() -> SteppedClock:
    """The clock of the command."""
    return SteppedClock()


@pytest.fixture
def deployed(template: dict[str, Any], clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeployedStage]:
    """The stage, with 3 records in orders-0 at the second to which it comes back, and 5 more since."""
    for name, value in {
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("penstock.cli.restore.wall_clock_ms", clock.now_ms)
    monkeypatch.setattr("penstock.cli.restore._sleep_ms", clock.sleep_ms)
    with deployed_stage(template) as deployed:
        monkeypatch.setattr("penstock.deployed.aws.client", deployed.client)
        deployed.stage.service.create("orders", 2)
        assert deployed.stage.service.produce(("orders", 0, batch("0", "1", "2"))).status == 200
        deployed.snapshot()
        assert deployed.stage.service.produce(("orders", 0, batch("3", "4", "5", "6", "7"))).status == 200
        yield deployed
