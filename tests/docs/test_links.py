"""Every relative link in README.md, CONTRIBUTING.md and docs/ leads to a file, and to a heading of it."""

import re
from pathlib import Path

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, prose

KINDS = ("tutorial", "how-to", "reference", "explanation", "contributing")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _broken(page: Path, link: str) -> str | None:
    """The reason why a link leads nowhere, or None."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: {_name(target)} has no such heading; it has {sorted(anchors(target))}"
    return None


def test_relative_links_of_each_page_resolve() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
        relative = [link for link in links if not re.match(r"[a-z]+:|\.\./\.\./actions/", link)]  # GitHub's own pages
        assert [why for link in relative if (why := _broken(page, link))] == [], page


def test_index_links_every_page_of_the_four_kinds() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", prose(DOCS / "README.md")))
    pages = {str(page.relative_to(DOCS)) for kind in KINDS for page in (DOCS / kind).glob("*.md")}
    assert pages - linked == set(), "docs/README.md lists every page, with one line each"
