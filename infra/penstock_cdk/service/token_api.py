"""The second HTTP API, for callers with tokens: it checks a token in place of IAM's signature (docs/adr/0054).

A route of an HTTP API takes one authorizer, so this is an API of its own. It passes the routes that
take tokens to the same functions, and has no other. It has no CORS: a page in a browser cannot call it.
"""

import json
import re
from collections.abc import Mapping

from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_authorizers import HttpJwtAuthorizer
from constructs import Construct

from penstock_cdk.service.api import ACCESS_LOG_FIELDS, STAGE, Api, integration_of, throttle
from penstock_cdk.settings import StageSettings
from penstock_cdk.walls import Jwt, RequestRate
from penstock_core.routes import ROUTES, Route

_TOKEN_ROUTES = tuple(route for route in ROUTES if route.tokens)
_CLAIM = "$context.authorizer.claims."
_PLAIN_CLAIM = re.compile(r"\w+", re.ASCII)  # the log cannot name others


class TokenApi(Construct):
    """API Gateway v2 with a JWT authorizer on each route. Its requests are in the access log of `api`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        jwt: Jwt,
        functions: Mapping[str, lambda_.IFunction],
        api: Api,
    ) -> None:
        super().__init__(scope, construct_id)
        self._http_api = apigatewayv2.HttpApi(
            self,
            "HttpApi",
            api_name=f"{settings.name}-jwt",
            description="Penstock, for callers with tokens",
            default_authorizer=HttpJwtAuthorizer("Tokens", jwt.issuer, jwt_audience=[*jwt.audiences]),
            default_authorization_scopes=[*jwt.scopes] or None,
            create_default_stage=False,
        )
        rates = {route: _rate(settings, jwt, route) for route in _TOKEN_ROUTES} if settings.request_rate else {}
        stage = apigatewayv2.CfnStage(
            self,
            "Stage",
            api_id=self._http_api.api_id,
            stage_name=STAGE,
            auto_deploy=True,
            route_settings={route.key: throttle(rate) for route, rate in rates.items()} or None,
            access_log_settings=apigatewayv2.CfnStage.AccessLogSettingsProperty(
                destination_arn=api.access_log.log_group_arn, format=json.dumps(_log_fields(jwt))
            ),
        )
        integrations = {
            name: integration_of(name, functions[name]) for name in {route.function: None for route in _TOKEN_ROUTES}
        }
        for route in _TOKEN_ROUTES:
            added = self._http_api.add_routes(
                path=route.path,
                methods=[apigatewayv2.HttpMethod[route.method]],
                integration=integrations[route.function],
            )
            stage.node.add_dependency(*added)  # API Gateway refuses settings of a route that is missing

    @property
    def api_id(self) -> str:
        """The API's id, the dimension of its metrics."""
        return self._http_api.api_id

    @property
    def url(self) -> str:
        """The URL of the API, without a slash at the end."""
        return self._http_api.api_endpoint


def _rate(settings: StageSettings, jwt: Jwt, route: Route) -> RequestRate:
    own = settings.route_rates.get(route.handler, jwt.request_rate)
    return settings.rate(
        RequestRate(
            per_second=min(own.per_second, jwt.request_rate.per_second), burst=min(own.burst, jwt.request_rate.burst)
        )
    )


def _log_fields(jwt: Jwt) -> dict[str, str]:
    """The caller's issuer and subject, and the claim that names it, on top of what every API logs."""
    claims = {"issuer": "iss", "subject": "sub"}
    if jwt.claim != "sub" and _PLAIN_CLAIM.fullmatch(jwt.claim):
        claims["claim"] = jwt.claim
    return {**ACCESS_LOG_FIELDS, **{name: f"{_CLAIM}{claim}" for name, claim in claims.items()}}
