"""The one table of routes: what it derives, and the match of a path."""

import re
from urllib.parse import unquote

import pytest

from penstock_core.routes import ROUTE_BY_KEY, ROUTES, ROUTES_OF_ALIAS, aliases_of, functions_of, match_route


def test_each_route_is_one_row() -> None:
    assert len(ROUTE_BY_KEY) == len(ROUTES)


def test_admin_is_the_last_alias_that_a_client_tries() -> None:
    all_aliases = ("direct-produce", "direct-consume", "direct-transact", "direct-admin")
    assert tuple(ROUTES_OF_ALIAS) == aliases_of(ROUTE_BY_KEY["GET /v1/metadata"]) == all_aliases
    assert aliases_of(ROUTE_BY_KEY["DELETE /v1/topics/{topic}"]) == ("direct-admin",)
    assert set(ROUTES_OF_ALIAS["direct-admin"]) == set(ROUTE_BY_KEY)


def test_functions_of_an_alias_are_those_of_its_routes() -> None:
    assert functions_of("direct-produce") == ("admin", "produce")
    assert functions_of("direct-transact") == ("admin", "transactions")


@pytest.mark.parametrize(
    "path",
    ["/v1/topics/orders", "/v1/topics/a%2Fb/offsets", "/v1/groups/g/offsets/delete", "/v1/zones/a", "/v1/topics/"]
    + [route.path for route in ROUTES],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_match_is_that_of_a_pattern_where_a_parameter_is_all_but_a_slash(method: str, path: str) -> None:
    patterns = {key: re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", key)) for key in ROUTE_BY_KEY}
    matched = {key: pattern.fullmatch(f"{method} {path}") for key, pattern in patterns.items()}
    found = [(key, each.groupdict()) for key, each in matched.items() if each]
    match = match_route(method, path)
    told = [] if match is None else [(match.route.key, match.parameters)]
    assert told == [(key, {name: unquote(value) for name, value in given.items()}) for key, given in found]


@pytest.mark.parametrize(
    "path", ["/v1/topics/a/../../produce", "/v1/topics/a/b", "//v1/produce", "/v1/produce/", "/V1/produce"]
)
def test_path_of_no_route_is_not_matched(path: str) -> None:
    assert match_route("POST", path) is None
