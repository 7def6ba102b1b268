"""The pages that people read, and the anchors that links to them may name."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEMPLATE = DOCS / "adr" / "template.md"  # its links are places to fill in
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")} - {TEMPLATE})


def prose(page: Path) -> str:
    """The page without its fenced code, in which `[x](y)` and `#` mean something else."""
    return re.sub(r"^\s*```.*?^\s*```\s*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, made as GitHub makes them: a repeated one gets `-1`, `-2` and so on."""
    found: set[str] = set()
    for heading in re.findall(r"^#+\s+(.+?)\s*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        repeats = sum(1 for anchor in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor))
        found.add(f"{slug}-{repeats}" if repeats else slug)
    return found
