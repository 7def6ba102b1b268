"""The aliases by which clients invoke functions without API Gateway, one for each policy of clients (docs/adr/0065)."""

from collections.abc import Container, Mapping

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.functions import construct_name, functions_arn
from penstock_cdk.service.releases import Releases
from penstock_cdk.settings import StageSettings
from penstock_core.routes import ADMIN, ROUTES_OF_ALIAS, functions_of

_PREFIX = "direct-"
ALL_FUNCTIONS = frozenset(functions_of(f"{_PREFIX}{ADMIN}"))
JOBS = tuple(alias.removeprefix(_PREFIX) for alias in ROUTES_OF_ALIAS)  # produce, consume, transact, admin


class DirectCalls(Construct):
    """An alias `direct-<job>` on each function that serves a route of that job.

    It names the version of the release, or `$LATEST` where a stage has no versions. With versions,
    `moving` holds those that carry records, by function and alias: they take part in the canary. The others, which
    operators invoke, and those of `admin`, wait until it has ended, so a release that is rolled back does not reach
    them. So do the functions without a route.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.Function],
        releases: Releases,
    ) -> None:
        super().__init__(scope, construct_id)
        self._aliases: dict[str, dict[str, lambda_.Alias]] = {}
        self.moving: dict[str, lambda_.Alias] = {}
        for alias in ROUTES_OF_ALIAS:
            for name in functions_of(alias):
                made = self._alias(alias, name, functions[name], has_versions=settings.canary is not None)
                if settings.canary is not None and ADMIN not in (name, alias.removeprefix(_PREFIX)):
                    self.moving[f"{name}_{alias.replace('-', '_')}"] = made
                self._aliases.setdefault(alias.removeprefix(_PREFIX), {})[name] = made
        moving = [*releases.api_aliases.values(), *self.moving.values()]
        for made in (each for by_function in self._aliases.values() for each in by_function.values()):
            if moving and made not in moving:
                made.node.add_dependency(*moving)
        releases.let_first(self.moving.values())
        self.arn = functions_arn(self, settings)

    def invoke_statement(self, job: str, functions: Container[str] = ALL_FUNCTIONS) -> iam.PolicyStatement:
        """Allows to invoke the aliases of one job, named one by one: no other alias, no version, no `$LATEST`.

        `functions` leaves out the aliases of other functions. Raises ValueError for a job that there is not.
        """
        if job.lower() not in self._aliases:
            raise ValueError(f"job {job!r:.60} does not exist: give {', '.join(self._aliases)}")
        aliases = self._aliases[job.lower()]
        return iam.PolicyStatement(
            actions=["lambda:InvokeFunction"],
            resources=[alias.function_arn for name, alias in aliases.items() if name in functions],
        )

    def _alias(self, alias: str, name: str, function: lambda_.Function, *, has_versions: bool) -> lambda_.Alias:
        return lambda_.Alias(
            self,
            f"{construct_name(name)}{construct_name(alias.replace('-', '_'))}",
            alias_name=alias,
            version=function.current_version if has_versions else function.latest_version,
            description="Clients that invoke this function prove who they are",
        )
