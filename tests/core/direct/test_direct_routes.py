"""The table of direct calls, against the tables of the API that it must agree with."""

import pytest

from penstock_cdk.service.routes import ROUTES
from penstock_core.direct.direct_routes import (
    ADMIN_ROUTES,
    FUNCTION_OF_ROUTE,
    ROUTES_OF_ALIAS,
    aliases_of,
    functions_of,
    match_route,
)
from penstock_handlers.router import route_of


def test_table_has_the_routes_of_the_api_and_their_functions() -> None:
    assert {f"{route.method} {route.path}": route.function for route in ROUTES} == FUNCTION_OF_ROUTE


@pytest.mark.parametrize("alias", ROUTES_OF_ALIAS)
def test_alias_has_routes_of_the_api_only(alias: str) -> None:
    assert set(ROUTES_OF_ALIAS[alias]) <= set(FUNCTION_OF_ROUTE)
    assert len(set(ROUTES_OF_ALIAS[alias])) == len(ROUTES_OF_ALIAS[alias])


def test_admin_is_the_last_alias_that_a_client_tries() -> None:
    assert aliases_of("GET /v1/metadata") == ("direct-produce", "direct-consume", "direct-transact", "direct-admin")
    assert aliases_of("DELETE /v1/topics/{topic}") == ("direct-admin",)
    assert set(ADMIN_ROUTES) == set(FUNCTION_OF_ROUTE)


def test_functions_of_an_alias_are_those_of_its_routes() -> None:
    assert functions_of("direct-produce") == ("produce", "records_produce", "topics")
    assert functions_of("direct-transact") == ("topics", "transactions")


@pytest.mark.parametrize(
    "path",
    ["/v1/topics/orders", "/v1/topics/a%2Fb/offsets", "/v1/groups/g/offsets/delete", "/v1/zones/a", "/v1/topics/"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_match_is_that_of_the_router(method: str, path: str) -> None:
    found = match_route(method, path)
    assert (("", {}) if found is None else (found.route, found.parameters)) == route_of(method, path)


@pytest.mark.parametrize(
    "path", ["/v1/topics/a/../../produce", "/v1/topics/a/b", "//v1/produce", "/v1/produce/", "/V1/produce"]
)
def test_path_of_no_route_is_not_matched(path: str) -> None:
    assert match_route("POST", path) is None
