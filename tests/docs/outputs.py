"""Compares the output of a snippet with the one that its page shows.

Each line is compared after the parts that differ from run to run are replaced: times, durations and rates, ids, ports,
and the numbers after the words "offset" and "partition". Spaces count as one, and so do the strokes of a table. A line
`…` in the page stands for any number of lines, and `…` inside a line for any text.
"""

import re

_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|\+\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d{13}\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min)\b"), "<duration>"),
    (re.compile(r"\b[\d,]+(\.\d+)? ?([kMG]?i?B|records)/s\b"), "<rate>"),
    (re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*\b"), "<id>"),
    (re.compile(r"\blocal-\d{8}-\d{6}-[0-9a-f]{6}\b"), "<id>"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "<host>"),
    (re.compile(r"((?:offset|partition)s?[\"']?[=:]? ?)\d+"), r"\1<number>"),
    (re.compile(r"[─━═]+|-{3,}"), "-"),
    (re.compile(r"\s+"), " "),
)
_GAP = "…"


def differs(shown: str, printed: str) -> str | None:
    """The first line of the page that was not printed where it should be, or None if all is as shown."""
    wanted = [_masked(line) for line in shown.splitlines() if line.strip()]
    lines = [_masked(line) for line in printed.splitlines() if line.strip()]
    place, may_skip = 0, False
    for line in wanted:
        if line == _GAP:
            may_skip = True
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split(_GAP)))
        last = len(lines) if may_skip else min(place + 1, len(lines))
        found = next((number for number in range(place, last) if pattern.fullmatch(lines[number])), None)
        if found is None:
            return f"the page shows {line!r}, and there was {lines[place] if place < len(lines) else 'nothing more'!r}"
        place, may_skip = found + 1, False
    if place < len(lines) and not may_skip:
        return f"the page does not show {lines[place]!r}"
    return None


def _masked(line: str) -> str:
    for pattern, instead in _VARYING:
        line = pattern.sub(instead, line)
    return line.strip()
