"""`python -m tools.shape`: find functions that do not fit a screen, and show large files and folders.

The check fails (exit 1) for a function of more than `FUNCTION_LINES_MAX` lines. Large files and folders are shown so
that you can ask whether each is still one concept; they do not fail the check.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from tools.sources import source_files

FUNCTION_LINES_MAX = 70
FILE_LINES_SHOWN = 400  # a file with more lines is shown
FOLDER_MODULES_SHOWN = 20  # a folder with more modules is shown


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(), hidden=True)
def main(root: Path) -> None:
    """Fail if a function is too long, and show large files and folders."""
    paths = source_files(root, ".py")
    sources = {path: (root / path).read_text(encoding="utf-8") for path in paths}
    for folder, modules in sorted(Counter(path.parent for path in paths).items()):
        if modules > FOLDER_MODULES_SHOWN:
            click.echo(f"{folder}/ holds {modules} modules")
    for path, source in sources.items():
        lines = source.count("\n")
        if lines > FILE_LINES_SHOWN:
            click.echo(f"{path} has {lines} lines")
    too_long = [
        f"{path}:{line}: {name} has {lines} lines, {FUNCTION_LINES_MAX} at most"
        for path, source in sources.items()
        for name, line, lines in function_lines(source)
        if lines > FUNCTION_LINES_MAX
    ]
    click.echo("\n".join(too_long), nl=bool(too_long))
    sys.exit(bool(too_long))


def function_lines(source: str) -> Iterator[tuple[str, int, int]]:
    """Each function of a module: its name, the line of its `def`, and its lines without the docstring's."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
            yield node.name, node.lineno, _lines(node) - (_lines(docstring) if docstring else 0)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


if __name__ == "__main__":
    main()
