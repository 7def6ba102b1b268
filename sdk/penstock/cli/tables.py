"""How a command prints rows.

| standard output        | the rows                                                                              |
|------------------------|---------------------------------------------------------------------------------------|
| a wide enough terminal | a table with frames                                                                   |
| a narrower one         | columns without frames; each row as lines of its own where even these do not fit      |
| a pipe or a file       | columns without frames, as wide as their content: a title, a header, a line for a row |
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from penstock_core.text import escaped

TEXT_COLUMNS = frozenset(
    [
        "zone",
        "state",
        "since",
        "reason",
        "topic",
        "group",
        "subscription",
        "owner",
        "goes to",
        "ordering",
        "dead letters",
        "from",
        "time",
        "changed settings",
        "created",
        "committed at",
        "metadata",
        "letter",
        "by",
        "job",
        "run",
        "latest run",
        "started",
        "ended",
        "detail",
        "principal",
        "address",
        "action",
        "resource",
        "result",
        "setting",
        "value",
        "default",
        "source",
        "effect",
        "change",
        "part",
        "what",
        "unit",
        "system",
        "note",
        "until",
        "way",
        "dearest",
        "subject",
        "limits",
    ]
)
FILE_COLUMNS = 10_000  # without a terminal: never wrap lines that a program may read
_FRAMED_ROWS_MAX = 1_000
_LAST_COLUMN_MIN = 20  # the last column of text may be folded to so many characters


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under a title; None is shown as a dash.

    Text comes from others too: it is no markup of rich's, and characters that a terminal would obey are escaped.
    """
    is_terminal = sys.stdout.isatty()
    cells = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    click.echo(escaped(title))
    if not is_terminal:
        for line in plain_lines(columns, cells):
            click.echo(line)
    else:
        print_fitting(Console(), columns, cells)


def plain_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns without frames, two blanks apart, and no blanks at the ends of lines. No line is wrapped.

    Rich would need half a millisecond for each row.
    """
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = (
            f"{cell}{blanks}" if name in TEXT_COLUMNS else f"{blanks}{cell}"
            for name, cell, width in zip(columns, row, widths, strict=True)
            for blanks in (" " * (width - cell_len(cell)),)
        )
        yield "  ".join(cells).rstrip()


def print_plain(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As `plain_lines`, with the last column of text folded into the width of the console."""
    with console.capture() as captured:
        console.print(_table(columns, rows, is_framed=False))
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    console.file.flush()


def print_fitting(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The richest form that the terminal has room for. Many rows come without frames."""
    if len(rows) > _FRAMED_ROWS_MAX and max(map(cell_len, lines := [*plain_lines(columns, rows)])) <= console.width:
        console.file.write("".join(f"{line}\n" for line in lines))
        console.file.flush()
        return
    framed = _table(columns, rows, is_framed=True)
    if _width(console, framed) <= console.width:
        console.print(framed)
        return
    has_text_last = columns[-1] in TEXT_COLUMNS
    widths = [max((len(name), *(len(row[at]) for row in rows))) for at, name in enumerate(columns)]
    needed = (
        sum(widths[:-1]) + 2 * len(widths[:-1]) + (min(widths[-1], _LAST_COLUMN_MIN) if has_text_last else widths[-1])
    )
    if needed <= console.width:
        print_plain(console, columns, rows)
        return
    name_width = max(map(len, columns))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            console.print(Text(f"{name:>{name_width}}  {cell}"), overflow="fold", soft_wrap=True)
        console.print()


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=FILE_COLUMNS), table).maximum


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, is_framed: bool) -> Table:
    table = Table() if is_framed else Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for at, name in enumerate(columns, 1):
        is_text = name in TEXT_COLUMNS
        may_fold = is_text and at == len(columns)
        table.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=not may_fold)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
