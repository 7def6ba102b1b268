"""The schedules: one rule for each task of the stage."""

from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.functions import construct_name
from penstock_cdk.service.push import LOOK
from penstock_cdk.service.tasks import Task, tasks_of
from penstock_cdk.service.timers import PROMOTE
from penstock_cdk.settings import StageSettings

_OFF_AT_FIRST = (PROMOTE, LOOK)


class Schedules(Construct):
    """The rule `<stage>-<task>` of each task, which tells the task to a function that has several.

    The rules of `promote` and `look_at_subscriptions` are off until the first delayed record (timers.py) and the first
    subscription (push.py). A failed run is not retried, because the next one is due anyway (`Releases` tells Lambda so,
    too). One permission for each function covers its rules: CloudFormation takes 500 resources of a stack.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        tasks = tasks_of(settings)
        for name, task in tasks.items():
            self._rule(name, task, functions[task.function])
        rules = Stack.of(self).format_arn(service="events", resource="rule", resource_name=f"{settings.name}-*")
        for function in dict.fromkeys(task.function for task in tasks.values()):
            functions[function].add_permission(
                "Schedules", principal=iam.ServicePrincipal("events.amazonaws.com"), source_arn=rules
            )

    def _rule(self, name: str, task: Task, function: lambda_.IFunction) -> None:
        is_on = name not in _OFF_AT_FIRST or (name == PROMOTE and self._settings.timers_always_on)
        events.CfnRule(
            Construct(self, construct_name(name)),
            "Resource",
            name=f"{self._settings.name}-{name.replace('_', '-')}",
            description=f"Starts Penstock's task {name}",
            schedule_expression=events.Schedule.rate(task.rate).expression_string,
            state="ENABLED" if is_on else "DISABLED",
            targets=[
                events.CfnRule.TargetProperty(
                    arn=function.function_arn,
                    id="Target0",
                    input=None if task.function == name else f'{{"task":"{name}"}}',
                    retry_policy=events.CfnRule.RetryPolicyProperty(maximum_retry_attempts=0),
                )
            ],
        )
