"""`python -m tools.shape`: find functions that do not fit a screen, splinters, and large files and folders.

The check fails (exit 1) for a function of more than `FUNCTION_LINES_MAX` lines, for more than `SPLINTERS_MAX`
splinters, and for more than `MODULES_MAX` modules of source. A splinter is a short module that one module of its folder
imports: a reader follows a request through fewer files if that module holds it. Lower both bounds when you join
modules.

Large files and folders are shown so that you can ask whether each is still one concept; they do not fail the check.
`--totals` counts the tree, as docs/contributing/size.md has it, and checks nothing.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from tools.sources import source_files, statements

FUNCTION_LINES_MAX = 70
FILE_LINES_SHOWN = 400  # a file with more lines is shown
FOLDER_MODULES_SHOWN = 20  # a folder with more modules is shown
SPLINTER_LINES_MAX = 59  # a longer module is no splinter
SPLINTERS_MAX = 8
MODULES_MAX = 849  # without generated ones and `__init__`. The goal is 680
PACKAGES = ("functions", "sdk", "glue_jobs", "infra", "localstack")  # folders of source


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(), hidden=True)
@click.option("--totals", is_flag=True, help="Print how large the tree is, and check nothing.")
def main(root: Path, totals: bool) -> None:
    """Fail if a function is too long, and show large files and folders."""
    paths = source_files(root, ".py")
    sources = {path: (root / path).read_text(encoding="utf-8") for path in paths}
    if totals:
        pages = {path: (root / path).read_text(encoding="utf-8") for path in source_files(root, ".md", ["docs"])}
        click.echo("\n".join(f"{figure:8,} {what}" for what, figure in _totals(sources, pages).items()))
        return
    for folder, held in sorted(Counter(path.parent for path in paths).items()):
        if held > FOLDER_MODULES_SHOWN:
            click.echo(f"{folder}/ holds {held} modules")
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
    modules = source_modules(sources)
    short = splinters(modules)
    for path, importer in short:
        click.echo(f"{path} is a splinter: only {importer.name} imports it")
    over = [
        f"there are {count} {kind}, {bound} at most"
        for kind, count, bound in (("splinters", len(short), SPLINTERS_MAX), ("modules", len(modules), MODULES_MAX))
        if count > bound
    ]
    click.echo("\n".join(over), nl=bool(over))
    sys.exit(bool(too_long or over))


def source_modules(sources: Mapping[Path, str]) -> dict[Path, str]:
    """The sources that count as modules: those of `PACKAGES`, without generated ones and `__init__`."""
    return {
        path: source
        for path, source in sources.items()
        if path.parts[0] in PACKAGES and path.name != "__init__.py" and not _is_generated(source)
    }


def _totals(sources: Mapping[Path, str], pages: Mapping[Path, str]) -> dict[str, int]:
    counted = {
        "source": [each for path, each in sources.items() if path.parts[0] in PACKAGES and not _is_generated(each)],
        "tests": [each for path, each in sources.items() if path.parts[0] == "tests"],
        "docs": [*pages.values()],
    }
    words = sum(len(page.split()) for path, page in pages.items() if path.parts[1] == "adr")
    lines = {f"lines of {what}": sum(each.count("\n") for each in texts) for what, texts in counted.items()}
    return lines | {"modules of source": len(source_modules(sources)), "words of decisions": words}


def _is_generated(source: str) -> bool:
    return source.startswith("# Generated")


def splinters(modules: Mapping[Path, str]) -> list[tuple[Path, Path]]:
    """The modules of at most `SPLINTER_LINES_MAX` lines with one importer, in their folder; each with this importer."""
    by_name = {_module_name(path): path for path in modules}
    importers: defaultdict[Path, set[Path]] = defaultdict(set)
    for path, source in modules.items():
        for name in _imported(source):
            if name in by_name:
                importers[by_name[name]].add(path)
    return [
        (path, importer)
        for path, source in modules.items()
        if source.count("\n") <= SPLINTER_LINES_MAX and len(importers[path]) == 1
        for importer in importers[path]
        if importer.parent == path.parent
    ]


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts if parts[0] == "localstack" else parts[1:])


def _imported(source: str) -> Iterator[str]:
    """The dotted names that a module may import: `from a import b` names `a` and `a.b`."""
    for node in statements(source):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def function_lines(source: str) -> Iterator[tuple[str, int, int]]:
    """Each function of a module: its name, the line of its `def`, and its lines without the docstring's."""
    for node in statements(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
            yield node.name, node.lineno, _lines(node) - (_lines(docstring) if docstring else 0)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


if __name__ == "__main__":
    main()
