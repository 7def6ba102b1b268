"""Marked blocks in a page: the only parts of `docs/performance*` that a program writes.

    <!-- result stack -->
    generated text
    <!-- end -->

A `result` block shows one file of `bench/results/`: the conditions of the run, then all its tables. A `figures` block
shows the table of `figures.py`. The text around the blocks is written by hand and stays as it is.
"""

import re
import textwrap
from collections.abc import Callable, Mapping

from bench.report.result import Machine, Result
from bench.report.tables import heading, to_markdown

LINE_COLUMNS = 100
_ITEM = textwrap.TextWrapper(
    width=LINE_COLUMNS, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)
_BLOCK = re.compile(r"<!-- (?P<kind>result|figures) ?(?P<name>\w*) -->\n.*?<!-- end -->", re.DOTALL)


def fill_blocks(page: str, results: Mapping[str, Result], to_figures: Callable[[], str]) -> str:
    """The page with all its blocks made anew. Raises LookupError for a block whose result does not exist."""

    def fill(block: re.Match[str]) -> str:
        kind, name = block["kind"], block["name"]
        if kind == "figures":
            return f"<!-- figures -->\n\n{to_figures()}\n\n<!-- end -->"
        if name not in results:
            raise LookupError(f"a page shows the result {name!r}, but bench/results/{name}.json does not exist")
        return f"<!-- result {name} -->\n\n{to_block(results[name])}\n\n<!-- end -->"

    return _BLOCK.sub(fill, page)


def shown_results(page: str) -> set[str]:
    """The names of the results that a page shows."""
    return {block["name"] for block in _BLOCK.finditer(page) if block["kind"] == "result"}


def to_block(result: Result) -> str:
    """The conditions of the run as a list, then each table under its title."""
    facts = [_origin(result), *result.conditions]
    if result.parameters:
        facts.append("Parameters: " + ", ".join(f"{name} {value}" for name, value in result.parameters.items()) + ".")
    if result.command is not None:
        facts.append(f"Run it again: `{result.command}`")
    parts = ["\n".join(_ITEM.fill(fact) for fact in facts)]
    for title, rows in result.tables.items():
        parts += [f"**{title[:1].upper()}{heading(title)[1:]}**", to_markdown(rows)]
    return "\n\n".join(parts)


def _origin(result: Result) -> str:
    when = f"{result.measured_at}, commit {result.commit}, {_machine(result.machine)}"
    if result.is_transcribed:
        return f"Transcribed by hand from an older page: {when}."
    return f"Measured: {when}."


def _machine(machine: Machine) -> str:
    facts = [f"{machine.cores} cores"]
    if machine.memory_gib is not None:
        facts.append(f"{machine.memory_gib:g} GiB")
    if machine.python is not None:
        facts.append(f"Python {machine.python}")
    if machine.load is not None:
        facts.append(f"load {machine.load:g}")
    return ", ".join(facts)
