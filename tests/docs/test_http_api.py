"""The pages of docs/reference/http describe every route that there is, and no other."""

import re

from penstock_core.routes import ROUTE_BY_KEY
from tests.docs.pages import DOCS

INDEX = DOCS / "reference" / "http-api.md"
PAGES = sorted((DOCS / "reference" / "http").glob("*.md"))
_ROW_OF_RIGHTS = re.compile(r"^\| `([A-Z]+ /v1/\S+)` \|.*$", re.MULTILINE)


def _routes(text: str) -> set[str]:
    found = re.findall(r"\b(GET|POST|PUT|PATCH|DELETE)\s+(/v1/[\w/{}-]+)", text)
    return {f"{method} {path}" for method, path in found}


def test_pages_describe_the_routes_of_the_service() -> None:
    assert _routes("".join(_ROW_OF_RIGHTS.sub("", page.read_text()) for page in PAGES)) == set(ROUTE_BY_KEY)


def test_table_of_rights_has_each_route_once() -> None:
    listed = _ROW_OF_RIGHTS.findall((DOCS / "reference" / "http" / "access-rules.md").read_text())
    assert sorted(listed) == sorted(ROUTE_BY_KEY)


def test_index_links_each_page() -> None:
    assert {f"http/{page.name}" for page in PAGES} == set(re.findall(r"\((http/[\w-]+\.md)\)", INDEX.read_text()))
