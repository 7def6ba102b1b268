"""The frame of a report: its style, in light and dark, and the elements of its parts.

Every text from users passes through `text` or `key_text`. The page loads no scripts, fonts or pictures from elsewhere,
and its own content policy forbids them.
"""

from collections.abc import Iterable, Sequence
from html import escape
from string import Template

from penstock_spark.analysis.summary import format_bytes

_STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #22262b; --soft: #667079; --grid: #dfe2e4; --bad: #b3261e; --good: #2b7a4b;
  --s0: #2368b5; --s1: #d1602c; --s2: #2e8b68; --s3: #8a5cb8; --s4: #a67c00; --s5: #23879c; --s6: #7d858c; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15181b; --card: #1d2125; --ink: #e6e8ea; --soft: #9aa3ab; --grid: #343a40; --bad: #ff8a80; --good: #7fd1a0;
  --s0: #6aa6ee; --s1: #f08c5a; --s2: #58c39a; --s3: #bb93e4; --s4: #e3bf55; --s5: #6ccbdd; --s6: #767e86; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 28px 20px 60px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 19px; margin: 40px 0 4px; }
p { margin: 4px 0 10px; max-width: 78ch; } .soft, figcaption, caption { color: var(--soft); font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 18px 0; }
.tile { background: var(--card); border: 1px solid var(--grid); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; } .tile span { color: var(--soft); font-size: 13px; }
.tile.bad b { color: var(--bad); }
.findings { background: var(--card); border: 1px solid var(--grid); border-left: 4px solid var(--bad);
  border-radius: 8px; margin: 0; padding: 10px 16px 10px 34px; }
.findings.none { border-left-color: var(--good); padding-left: 16px; }
.findings li { margin: 3px 0; }
figure { margin: 14px 0; background: var(--card); border: 1px solid var(--grid); border-radius: 8px;
  padding: 12px 14px; }
figure > div { overflow-x: auto; } svg.plot { display: block; width: 100%; min-width: 620px; height: auto;
  font-family: inherit; } svg.plot text { fill: var(--ink); }
.wide { overflow-x: auto; margin: 10px 0; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
caption { text-align: left; padding: 4px 0; } th, td { text-align: left; padding: 4px 6px; border-bottom: 1px solid
  var(--grid); white-space: nowrap; } th { color: var(--soft); font-weight: 600; white-space: normal;
  vertical-align: bottom; } .n { text-align: right;
  font-variant-numeric: tabular-nums; } td.bad { color: var(--bad); font-weight: 600; }
td.name { max-width: 220px; overflow: hidden; text-overflow: ellipsis; } code { font-size: 12.5px; }
.bar { display: inline-block; vertical-align: middle; width: 140px; height: 9px; background: var(--grid);
  border-radius: 3px; } .bar i { display: block; height: 100%; background: var(--s0); border-radius: 3px; }
.bad .bar i { background: var(--bad); }
svg.line { width: 72px; height: 20px; vertical-align: middle; } svg.line polyline { fill: none; stroke: var(--s0);
  stroke-width: 1.5; } dt { font-weight: 600; } dd { margin: 0 0 8px; max-width: 82ch; }
@media (max-width: 640px) { body { padding: 20px 12px 40px; } td.name { max-width: 130px; } .bar { width: 60px; } }
@media print { body { max-width: none; } figure, .tile { break-inside: avoid; } }
"""
_PAGE = Template(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>$title</title><style>$style</style></head>
<body><main>
$body
</main></body></html>
"""
)


def page(title: str, parts: Iterable[str]) -> str:
    """A whole document. The parts must be HTML already."""
    return _PAGE.substitute(title=text(title), style=_STYLE, body="\n".join(part for part in parts if part))


def text(value: object) -> str:
    """Any value as HTML text, safe in elements and in attributes."""
    return escape(str(value), quote=True)


def key_text(prefix: bytes, length: int) -> str:
    """A record's key as HTML: its text if that is printable, else its bytes in hexadecimal. A long key is cut."""
    rest = "" if length <= len(prefix) else f" … ({format_bytes(length)})"
    try:
        shown = prefix.decode()
    except UnicodeDecodeError as error:
        # The cut may halve a character. The rest is still text.
        is_cut = length > len(prefix) and error.reason == "unexpected end of data"
        shown = prefix[: error.start].decode() if is_cut else ""
    if not length:
        return "<em>empty</em>"
    if not shown.isprintable() or not shown:
        return f"<code>0x{prefix.hex()}</code>{text(rest)}"
    return f"<code>{text(shown)}</code>{text(rest)}"


def tile(value: str, label: str, *, is_bad: bool = False) -> str:
    """A figure with its label. `is_bad` colours it."""
    return f'<div class="tile{" bad" if is_bad else ""}"><b>{text(value)}</b><span>{text(label)}</span></div>'


def figure(svg: str, alt: str, caption: str = "") -> str:
    """A plot. `alt` describes the plot in words, for readers who do not see it."""
    shown = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return f'<figure><div role="img" aria-label="{text(alt)}">{svg}</div>{shown}</figure>'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 1) -> str:
    """A table.

    Cells must be HTML already, or whole `<td>` elements. Columns from `numbers_from` on are aligned right.
    """
    body = "".join(f"<tr>{''.join(_cell(each, at, numbers_from) for at, each in enumerate(row))}</tr>" for row in rows)
    if not body:
        return ""
    head = "".join(f'<th scope="col"{_number(at, numbers_from)}>{text(each)}</th>' for at, each in enumerate(heads))
    return (
        f'<div class="wide"><table><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def bad(cell: str) -> str:
    """The cell of a number to look at."""
    return f'<td class="n bad">{cell}</td>'


def bar(share: float) -> str:
    """A share as the length of a bar, to be next to the number."""
    return f'<span class="bar" aria-hidden="true"><i style="width:{min(1.0, share) * 100:.1f}%"></i></span>'


def sparkline(values: Sequence[float]) -> str:
    """The course of some values, without a scale."""
    top = max(values, default=0) or 1
    step = 110 / max(1, len(values) - 1)
    points = " ".join(f"{index * step:.1f},{19 - 18 * value / top:.1f}" for index, value in enumerate(values))
    return f'<svg class="line" viewBox="0 0 110 20" aria-hidden="true"><polyline points="{points}"/></svg>'


def _cell(cell: str, at: int, numbers_from: int) -> str:
    if cell.startswith("<td"):
        return cell
    return f"<td{_number(at, numbers_from) or ' class=name'}>{cell}</td>"


def _number(at: int, numbers_from: int) -> str:
    return ' class="n"' if at >= numbers_from else ""
