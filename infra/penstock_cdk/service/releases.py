"""How a release of the functions reaches their callers: versions, the alias `live`, and a canary (docs/adr/0035)."""

from collections.abc import Iterable, Mapping, Sequence

from aws_cdk import Acknowledgment, Duration, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.functions import construct_name
from penstock_cdk.service.tasks import tasks_of
from penstock_cdk.settings import LIVE, Canary, StageSettings
from penstock_core.routes import ROUTES

# AWS's own policy for this use. It may move the aliases of every function in the account.
_SHIFTING_POLICY = "service-role/AWSCodeDeployRoleForLambdaLimited"

_PERCENT_OF_AWS, _MINUTES_OF_AWS = 10, (5, 10, 15, 30)  # canaries that CodeDeploy has without a resource


class Releases(Construct):
    """`entries` holds what callers call, by function: the alias `live`, or the function where a stage has no versions.

    An alias names the version that the release has published. `api_aliases` are those of functions with a route.
    `late_aliases` are the others. They wait for all that callers reach: a release that is rolled back has run no sweep.
    Lambda does not repeat a scheduled run that failed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.Function],
    ) -> None:
        super().__init__(scope, construct_id)
        self.api_aliases: dict[str, lambda_.Alias] = {}
        self.late_aliases: tuple[lambda_.Alias, ...] = ()
        self.entries: dict[str, lambda_.IFunction] = dict(functions)
        if settings.canary is not None:
            aliases = {name: self._alias(name, function) for name, function in functions.items()}
            called = {route.function for route in ROUTES}
            self.api_aliases = {name: alias for name, alias in aliases.items() if name in called}
            self.late_aliases = tuple(alias for name, alias in aliases.items() if name not in called)
            self.let_first(self.api_aliases.values())
            self.entries.update(aliases)
        for name in dict.fromkeys(task.function for task in tasks_of(settings).values()):
            self.entries[name].configure_async_invoke(retry_attempts=0)

    def let_first(self, aliases: Iterable[lambda_.Alias]) -> None:
        """Makes the functions without a route wait until these aliases have moved."""
        for alias in self.late_aliases:
            alias.node.add_dependency(*aliases)

    def _alias(self, name: str, function: lambda_.Function) -> lambda_.Alias:
        return lambda_.Alias(
            self,
            construct_name(name),
            alias_name=LIVE,
            version=function.current_version,
            description="The version that callers reach",
        )


class CanaryDeployment(Construct):
    """Lets CodeDeploy move each of `aliases` in two steps, and back when one of `alarms` rings.

    The key of an alias names its deployment group. Each alias has a group, because a group runs one deployment at a
    time ("CodeDeploy quotas"). So all aliases move side by side, those of direct calls with `live`. It costs nothing.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        aliases: Mapping[str, lambda_.Alias],
        alarms: Sequence[cloudwatch.Alarm],
    ) -> None:
        super().__init__(scope, construct_id)
        if settings.canary is None:
            raise ValueError(f"stage {settings.name} has no canary")
        application = codedeploy.LambdaApplication(self, "Application", application_name=settings.name)
        steps = self._steps(settings.canary)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"))
        for name, alias in aliases.items():
            codedeploy.LambdaDeploymentGroup(
                self,
                construct_name(name),
                deployment_group_name=f"{settings.name}-{name.replace('_', '-')}",
                application=application,
                alias=alias,
                deployment_config=steps,
                role=role,
                alarms=list(alarms),
                auto_rollback=codedeploy.AutoRollbackConfig(
                    deployment_in_alarm=True, failed_deployment=True, stopped_deployment=True
                ),
            )
        Validations.of(role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_SHIFTING_POLICY}]",
                reason="CodeDeploy documents this policy, and only CodeDeploy may take the role.",
            )
        )

    def _steps(self, canary: Canary) -> codedeploy.ILambdaDeploymentConfig:
        """The configuration of the steps: AWS's own where it has them, else one of the stage."""
        if canary.percent == _PERCENT_OF_AWS and canary.minutes in _MINUTES_OF_AWS:
            name = f"CodeDeployDefault.LambdaCanary{canary.percent}Percent{canary.minutes}Minutes"
            return codedeploy.LambdaDeploymentConfig.from_lambda_deployment_config_name(self, "Steps", name)
        return codedeploy.LambdaDeploymentConfig(
            self,
            "Steps",
            traffic_routing=codedeploy.TimeBasedCanaryTrafficRouting(
                percentage=canary.percent, interval=Duration.minutes(canary.minutes)
            ),
        )
