"""Errors and defects: CloudFormation gets an answer in any case."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_handlers.edge.custom_resource import Change, Settled, custom_resource_entry_point
from penstock_handlers.provision import settle
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import CloudFormation
from tests.handlers.provision.template import Template
from tests.handlers.service import CONTEXT
from tests.support.cloud_formation import MemoryCloudFormation, event_of
from tests.support.service import UNAVAILABLE, SteppedClock


def failing(errors: list[Exception]) -> Any:
    def settle_after_errors(change: Change, to: Instance, stack: CloudFormation) -> Settled:
        if errors:
            raise errors.pop(0)
        return settle(change, to, stack)

    return settle_after_errors


def test_storage_that_comes_back_is_waited_for(to: Instance, clock: SteppedClock) -> None:
    stack = MemoryCloudFormation()
    handler = custom_resource_entry_point(failing([UNAVAILABLE, UNAVAILABLE]), caller=lambda: stack)
    handler(event_of("Create", "Topic", {"Name": "orders"}), CONTEXT)
    assert stack.answers[-1]["Status"] == "SUCCESS"
    assert len(clock.sleeps) == 2
    assert to.topic_cache.read_through("orders")


@pytest.mark.usefixtures("to")
def test_storage_that_stays_away_fails_in_time(clock: SteppedClock) -> None:
    stack = MemoryCloudFormation()
    handler = custom_resource_entry_point(failing([UNAVAILABLE] * 1_000), caller=lambda: stack)
    handler(event_of("Create", "Topic", {"Name": "orders"}), CONTEXT)
    assert stack.answers[-1]["Status"] == "FAILED"
    assert "it does not answer" in stack.answers[-1]["Reason"]
    assert sum(clock.sleeps) < 30_000, "CloudFormation waits 60 s for an answer"


@pytest.mark.usefixtures("to")
def test_defect_is_answered_too() -> None:
    stack = MemoryCloudFormation()
    handler = custom_resource_entry_point(failing([KeyError("secret")]), caller=lambda: stack)
    handler(event_of("Update", "Topic", {"Name": "orders"}, PhysicalResourceId="orders/1"), CONTEXT)
    assert stack.answers[-1]["Status"] == "FAILED"
    assert stack.answers[-1]["PhysicalResourceId"] == "orders/1"
    assert "secret" not in stack.answers[-1]["Reason"]


def test_kind_that_the_release_does_not_know_is_answered(to: Instance) -> None:
    assert Template(to, "Comet").create(Name="halley")["Status"] == "FAILED"


@pytest.mark.usefixtures("to")
def test_answer_that_nobody_takes_is_an_error_of_the_function() -> None:
    stack = MemoryCloudFormation(refusal=UNAVAILABLE)
    handler = custom_resource_entry_point(settle, caller=lambda: stack)
    with pytest.raises(PenstockError) as refused:
        handler(event_of("Create", "Topic", {"Name": "orders"}), CONTEXT)
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
