"""Takes account ids, keys, hosts and URLs out of a text, so that a person can paste it into an issue."""

import re

_PATTERNS = (
    (re.compile(r"arn:aws[\w-]*:[^\s\"'|,)]+"), "<arn>"),
    (re.compile(r"(?:https?|wss?)://[^\s\"'|,)]+"), "<url>"),
    (re.compile(r"\b[\w.-]+\.amazonaws\.com(?:\.cn)?\b"), "<host>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<host>"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{8,}\b"), "<key>"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "<account>"),
)


def redacted(text: str) -> str:
    """The text with a placeholder for each of them."""
    for pattern, placeholder in _PATTERNS:
        text = pattern.sub(placeholder, text)
    return text
