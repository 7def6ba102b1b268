"""Runs of tasks on a stage: the function of each, and what it is told."""

import json
from typing import Any

_FUNCTIONS = {
    **dict.fromkeys(("recover_zones", "measure", "audit", "look_at_subscriptions", "retention"), "upkeep"),
    **dict.fromkeys(("scrub", "tier", "clean"), "hourly"),
}


def function_of(task: str, stage: str = "penstock") -> str:
    """The name of the function that does the task: its own, or one that several share."""
    return f"{stage}-{_FUNCTIONS.get(task, task)}"


def start(lambdas: Any, task: str, stage: str = "penstock") -> Any:
    """The answer of Lambda to a run of the task, begun as its schedule begins it."""
    return lambdas.invoke(FunctionName=function_of(task, stage), Payload=json.dumps({"task": task}).encode())
