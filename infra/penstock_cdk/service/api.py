"""The HTTP API: it checks IAM's signature, passes every route of `ROUTES` to its function, and logs each request."""

import json
from collections.abc import Mapping

from aws_cdk import Fn, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.aws_apigatewayv2_authorizers import HttpIamAuthorizer
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_cdk.walls import RequestRate
from penstock_core.routes import ROUTES, Route

STAGE = "$default"  # the stage whose name is not in the URL

ACCESS_LOG_FIELDS = {
    "requestId": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "route": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "error": "$context.error.message",
    "integrationStatus": "$context.integration.integrationStatus",  # of Lambda itself: 429 if it started nothing
    "sourceIp": "$context.identity.sourceIp",
    "latencyMs": "$context.responseLatency",
    "integrationLatencyMs": "$context.integrationLatency",
    "responseBytes": "$context.responseLength",
}
_CALLER = {"userArn": "$context.identity.userArn"}


class Api(Construct):
    """API Gateway v2 with one stage, `$default`, so that URLs begin with /v1."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._http_api = apigatewayv2.HttpApi(
            self,
            "HttpApi",
            api_name=settings.name,
            description="Penstock",
            default_authorizer=HttpIamAuthorizer(),
            create_default_stage=False,
        )
        access_log = self.access_log = self._access_log(settings)
        rate = None if settings.request_rate is None else settings.rate(settings.request_rate)
        stage = apigatewayv2.CfnStage(
            self,
            "Stage",
            api_id=self._http_api.api_id,
            stage_name=STAGE,
            auto_deploy=True,
            default_route_settings=None
            if rate is None
            else apigatewayv2.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=rate.per_second, throttling_burst_limit=rate.burst
            ),
            route_settings={
                route.key: throttle(settings.rate(settings.route_rates[route.handler]))
                for route in ROUTES
                if route.handler in settings.route_rates
            }
            or None,
            access_log_settings=apigatewayv2.CfnStage.AccessLogSettingsProperty(
                destination_arn=access_log.log_group_arn, format=json.dumps({**ACCESS_LOG_FIELDS, **_CALLER})
            ),
        )
        integrations = {name: integration_of(name, function) for name, function in functions.items()}
        for route in ROUTES:
            added = self._http_api.add_routes(
                path=route.path,
                methods=[apigatewayv2.HttpMethod[route.method]],
                integration=integrations[route.function],
            )
            if route.handler in settings.route_rates:
                stage.node.add_dependency(*added)  # API Gateway refuses settings of a route that is missing

    def _access_log(self, settings: StageSettings) -> logs.LogGroup:
        """The log that says which principal called what. It outlives the stack where the stage keeps data.

        Log delivery writes the name of each group outside /aws/vendedlogs/ into a policy of 5,120 characters that the
        whole account shares. The stack's own id in the name lets you deploy again next to a log that was kept.
        """
        own_id = Fn.select(2, Fn.split("/", Stack.of(self).stack_id))
        log = logs.LogGroup(
            self,
            "AccessLog",
            log_group_name=f"/aws/vendedlogs/{settings.name}/access/{own_id}",
            retention=logs.RetentionDays[settings.audit_log_retention],
            removal_policy=RemovalPolicy.RETAIN if settings.keeps_data_on_delete else RemovalPolicy.DESTROY,
        )
        self.access_log_name = log.log_group_name
        return log

    @property
    def api_id(self) -> str:
        """The API's id, as its ARNs contain it."""
        return self._http_api.api_id

    @property
    def url(self) -> str:
        """The URL of the API, without a slash at the end."""
        return self._http_api.api_endpoint

    def route_arn(self, route: Route, **names: str) -> str:
        """Returns the resource of execute-api:Invoke for a route, with `names` for the parameters of its path.

        A parameter without a name becomes `*`. IAM's `*` also matches slashes: GET /v1/topics/* covers every GET below
        a topic.
        """
        parts = (names.get(part[1:-1], "*") if part.startswith("{") else part for part in route.segments)
        return self._arn(f"{route.method}{'/'.join(parts)}")

    def all_routes_arns(self) -> list[str]:
        """The resources of execute-api:Invoke for all routes: one for each method. IAM takes 6,144 characters."""
        return [self._arn(f"{method}/v1/*") for method in sorted({route.method for route in ROUTES})]

    def _arn(self, place: str) -> str:
        return Stack.of(self).format_arn(
            service="execute-api", resource=self._http_api.api_id, resource_name=f"{STAGE}/{place}"
        )


def integration_of(name: str, function: lambda_.IFunction) -> HttpLambdaIntegration:
    """Passes routes to a function. One permission covers all routes: CloudFormation takes 500 resources of a stack."""
    return HttpLambdaIntegration(name.title().replace("_", ""), function, scope_permission_to_route=False)


def throttle(rate: RequestRate) -> dict[str, int]:
    """The settings of a route with that rate, as a stage has them."""
    return {"ThrottlingRateLimit": rate.per_second, "ThrottlingBurstLimit": rate.burst}
