"""Templates into HTML. Values are only text: HTML is escaped, and characters that hide or turn text are shown."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from penstock.console.page import path_of, url
from penstock.model.times import duration_text, local_zone
from penstock_core import text
from penstock_core.limits import UNLIMITED
from penstock_core.text import escaped

_AGE_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_YEAR_9999_MS = 253_402_300_800_000
_BOX = (300, 50)
STATIC_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def visible(value: object) -> object:
    """Text without control characters and without characters that turn its direction; HTML as it is."""
    if value is None:
        return "–"
    return escaped(value, kept="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


def number_text(value: int | float | None) -> str:
    """A number with separators of thousands."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def bytes_text(count: int | None) -> str:
    """A number of bytes in its unit."""
    return "–" if count is None else text.bytes_text(count)


def time_text(timestamp_ms: int | None) -> str:
    """A time in UTC to the millisecond; one that no calendar has as its number."""
    if timestamp_ms is None:
        return "–"
    if not 0 <= timestamp_ms < _YEAR_9999_MS:
        return f"{timestamp_ms} ms"
    at = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1_000:03d}"


def span_text(duration_ms: int | None) -> str:
    """A length of time in one or two units."""
    if duration_ms is None:
        return "–"
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    for at, (unit, unit_ms) in enumerate(_AGE_UNITS):
        if duration_ms >= unit_ms:
            rest = duration_ms % unit_ms
            small, small_ms = _AGE_UNITS[at + 1] if at + 1 < len(_AGE_UNITS) else ("", 1)
            lesser = rest // small_ms if small else 0
            return f"{duration_ms // unit_ms} {unit}" + (f" {lesser} {small}" if lesser else "")
    return f"{duration_ms} ms"


def polyline(points: Sequence[tuple[int, float]]) -> str:
    """The points of an SVG polyline in a box of `_BOX`, from times and values, the oldest first. Its bottom is 0."""
    first_ms, last_ms = points[0][0], points[-1][0]
    most = max(value for _, value in points) or 1
    return " ".join(
        f"{(at_ms - first_ms) * _BOX[0] / max(1, last_ms - first_ms):.1f},{_BOX[1] - value * _BOX[1] / most:.1f}"
        for at_ms, value in points
    )


def setting_text(name: str, value: object) -> str:
    """A setting's value as people write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == UNLIMITED and name.endswith(("_ms", "_ms_max", "_bytes")):
        return "forever" if name.endswith("_ms") else "unlimited"
    if isinstance(value, int) and name.endswith(("_ms", "_ms_min", "_ms_max")):
        return duration_text(value) if value else "0"
    return str(value)


def static_file(name: str) -> tuple[str, bytes] | None:
    """The content type and the bytes of one of the console's own files."""
    return _static_files().get(name)


@lru_cache
def _static_files() -> Mapping[str, tuple[str, bytes]]:
    folder = files("penstock.console").joinpath("static")
    return {
        each.name: (STATIC_TYPES[each.name.rpartition(".")[2]], each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in STATIC_TYPES
    }


@lru_cache
def environment() -> Environment:
    """The templates with what they may call."""
    made = Environment(
        loader=PackageLoader("penstock.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": number_text,
        "bytes": bytes_text,
        "time": time_text,
        "span": span_text,
        "pretty": lambda value: json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False),
    }
    made.globals |= {"path_of": path_of, "url": url, "setting_text": setting_text, "local_zone": local_zone}
    made.globals |= {"polyline": polyline}
    return made


def render(template: str, facts: Mapping[str, object]) -> str:
    """The HTML of a template."""
    return environment().get_template(template).render(facts)
