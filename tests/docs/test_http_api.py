"""docs/reference/http-api.md describes every route that there is, and no other."""

import re

from penstock_handlers.router import ROUTES
from tests.docs.pages import DOCS


def test_page_names_the_routes_of_the_service() -> None:
    text = (DOCS / "reference" / "http-api.md").read_text()
    assert set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /v1/[\w/{}-]+)", text)) == set(ROUTES)
