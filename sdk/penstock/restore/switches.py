"""The switches that a restore turns off, and puts back as they were.

They are functions, pollers of queues and streams, rules, and schedules of jobs. A function is stopped by a reserved
concurrency of 0. What would only start one is switched off, too: else Lambda keeps events for hours, and SQS counts
receipts until a message is dead.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack, StageFunction
from penstock_core.errors import PenstockError

# The function that CloudFormation calls. It runs in a deployment only, and the deployment of a restore needs it.
PROVISION = "provision"
_RUNNING_ON_EMR = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING")
_RUNNING_ON_GLUE = ("STARTING", "WAITING", "RUNNING", "STOPPING")
_RUNS_MAX = 200  # the newest: Glue runs one of a job at a time, unless told otherwise
SWEEP = "sweep"
_GONE = "ResourceNotFoundException"
_UPDATED_BY = (  # of GetSchedule: what UpdateSchedule takes
    "Description",
    "EndDate",
    "FlexibleTimeWindow",
    "GroupName",
    "KmsKeyArn",
    "Name",
    "ScheduleExpression",
    "ScheduleExpressionTimezone",
    "StartDate",
    "Target",
    "ActionAfterCompletion",
)


class SwitchKind(StrEnum):
    """A thing that can be stopped."""

    RULE = "rule"
    SCHEDULE = "schedule"
    MAPPING = "mapping"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One thing that a restore stops. `before` is its reserved concurrency (None for none), or 1 for what was on.

    `label` is its name for people. `timeout_s`: a function that runs may write for so long. `is_sweep`: it comes back
    last, because the sweep removes objects.
    """

    kind: SwitchKind
    name: str
    label: str
    before: int | None
    handler: str = ""
    timeout_s: int = 0
    is_sweep: bool = False

    def text(self, old: int | None, new: int | None) -> str:
        """A change of it, for people."""
        if self.kind is SwitchKind.FUNCTION:
            named = ["none" if each is None else str(each) for each in (old, new)]
            return f"function {self.label}: reserved concurrency {named[0]} -> {named[1]}"
        return f"{self.kind} {self.label}: {'off' if not new else 'on'}"


def find_switches(aws: Aws, stack: DeployedStack) -> tuple[Switch, ...]:
    """The switches of a stage as they are now: of functions that write, and of what starts these.

    They are in the order in which to stop them: first what starts functions. They leave out what is off already, except
    functions. One read of each, and two of a function.
    """
    functions = [each for each in stack.functions() if each.writes and each.handler != PROVISION]
    sweeps = [each for each in functions if each.handler == SWEEP]
    of_sweep = {f"{stack.name}-{SWEEP}"} | {  # the schedule of the job, and what starts the function
        name
        for kind in ("AWS::Events::Rule", "AWS::Lambda::EventSourceMapping")
        for _, name in stack.starters(kind, sweeps)
    }
    found = [
        *((SwitchKind.RULE, name, name) for _, name in stack.starters("AWS::Events::Rule", functions)),
        *((SwitchKind.SCHEDULE, name, name) for name in stack.schedules()),
        *(
            (SwitchKind.MAPPING, name, logical_id)
            for logical_id, name in stack.starters("AWS::Lambda::EventSourceMapping", functions)
        ),
    ]
    switches = [
        Switch(kind=kind, name=name, label=label, before=before, is_sweep=name in of_sweep)
        for kind, name, label in found
        if (before := state_of(aws, kind, name))
    ]
    return (*switches, *(_function(aws, each) for each in functions))


def running_jobs(aws: Aws, stack: DeployedStack) -> Iterator[str]:
    """The runs of Spark jobs that may still write, on EMR Serverless and on Glue. One list for each place of a job."""
    application = stack.outputs.get("JobsApplicationId")
    if application is not None:
        on = {"applicationId": application, "states": [*_RUNNING_ON_EMR]}
        for run in aws.pages("jobRuns", "emr-serverless", "list_job_runs", application, cursor="nextToken", **on):
            yield f"{run.get('name', 'job')} ({run['id']}) on EMR"
    for output, name in stack.outputs.items():
        if output.startswith("Job") and output.endswith("Glue"):
            runs = aws.call("glue", "get_job_runs", name, JobName=name, MaxResults=_RUNS_MAX)["JobRuns"]
            yield from (f"{name} ({run['Id']}) on Glue" for run in runs if run["JobRunState"] in _RUNNING_ON_GLUE)


def _function(aws: Aws, function: StageFunction) -> Switch:
    told = aws.call("lambda", "get_function_configuration", function.name, FunctionName=function.name)
    return Switch(
        kind=SwitchKind.FUNCTION,
        name=function.name,
        label=function.name,
        before=state_of(aws, SwitchKind.FUNCTION, function.name),
        handler=function.handler,
        timeout_s=told["Timeout"],
        is_sweep=function.handler == SWEEP,
    )


def state_of(aws: Aws, kind: SwitchKind, name: str) -> int | None:
    """The state of a switch now, as `Switch.before` has it: 0 for what is off, None for what a deployment removed.

    Raises INVALID_CONFIG with AWS's ResourceNotFoundException for a function that has gone: its None is no reserve.
    """
    return _READS[kind](aws, name)


def is_at(aws: Aws, switch: Switch, state: int | None) -> bool:
    """Whether a switch has that state. A switch that a deployment has removed or made anew needs no switching."""
    try:
        found = state_of(aws, switch.kind, switch.name)
    except PenstockError as error:
        if aws_code(error) == _GONE:
            return True
        raise
    return found == state or (found is None and switch.kind is not SwitchKind.FUNCTION)


def set_state(aws: Aws, switch: Switch, state: int | None) -> None:
    """Sets a switch. One or two calls. A switch that a deployment has removed needs none."""
    _WRITES[switch.kind](aws, switch.name, state)


def _concurrency(aws: Aws, name: str) -> int | None:
    return aws.call("lambda", "get_function_concurrency", name, FunctionName=name).get("ReservedConcurrentExecutions")


def _set_concurrency(aws: Aws, name: str, state: int | None) -> None:
    if state is None:
        aws.find(_GONE, "lambda", "delete_function_concurrency", name, FunctionName=name)
        return
    on = {"FunctionName": name, "ReservedConcurrentExecutions": state}
    aws.find(_GONE, "lambda", "put_function_concurrency", name, **on)


def _mapping(aws: Aws, uuid: str) -> int | None:
    found = aws.find(_GONE, "lambda", "get_event_source_mapping", uuid, UUID=uuid)
    return None if found is None else int(found["State"] in ("Enabled", "Enabling", "Creating", "Updating"))


def _set_mapping(aws: Aws, uuid: str, state: int | None) -> None:
    on = {"UUID": uuid, "Enabled": bool(state)}
    aws.find(_GONE, "lambda", "update_event_source_mapping", uuid, **on)


def _rule(aws: Aws, name: str) -> int | None:
    found = aws.find(_GONE, "events", "describe_rule", name, Name=name)
    return None if found is None else int(found["State"] != "DISABLED")


def _set_rule(aws: Aws, name: str, state: int | None) -> None:
    aws.find(_GONE, "events", "enable_rule" if state else "disable_rule", name, Name=name)


def _schedule(aws: Aws, name: str) -> int | None:
    found = aws.find(_GONE, "scheduler", "get_schedule", name, Name=name)
    return None if found is None else int(found["State"] != "DISABLED")


def _set_schedule(aws: Aws, name: str, state: int | None) -> None:
    found = aws.find(_GONE, "scheduler", "get_schedule", name, Name=name)
    if found is not None:
        kept = {field: found[field] for field in _UPDATED_BY if field in found}
        aws.call("scheduler", "update_schedule", name, **kept, State="ENABLED" if state else "DISABLED")


_READS: Mapping[SwitchKind, Callable[[Aws, str], int | None]] = {
    SwitchKind.FUNCTION: _concurrency,
    SwitchKind.MAPPING: _mapping,
    SwitchKind.RULE: _rule,
    SwitchKind.SCHEDULE: _schedule,
}
_WRITES: Mapping[SwitchKind, Callable[[Aws, str, Any], None]] = {
    SwitchKind.FUNCTION: _set_concurrency,
    SwitchKind.MAPPING: _set_mapping,
    SwitchKind.RULE: _set_rule,
    SwitchKind.SCHEDULE: _set_schedule,
}
