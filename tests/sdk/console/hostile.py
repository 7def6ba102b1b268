"""Text that attacks a page, a terminal or the eye. No page may hold it as anything but text."""

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</textarea></td></table><h1>x</h1>",
    "{{ 7*7 }}{% include 'x' %}",
    "javascript:alert(1)",
    "\x1b[2J\x1b]0;pwned\x07",
    "a\u202egnp.exe\u2066\u2028",
    "\x00\x85\x9b",
    "🧨" * 30,
)
FORBIDDEN = ("<script>alert", "<img", "<h1>x", "\x1b", "\u202e", "\u2066", "\u2028", "\x00", "\x85", "\x9b", "\x07")


def forbidden_in(html: str) -> list[str]:
    """The parts of a page that hostile text must not have made."""
    return [each for each in FORBIDDEN if each in html.replace('<img src="/static/icon.svg"', "")]
