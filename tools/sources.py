"""The files that the checks look at, tracked or new and not ignored by git, and the statements of each."""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # of a statement


def statements(source: str) -> Iterator[ast.AST]:
    """The statements of a Python file, with handlers and cases. `ast.walk` gives all nodes, in five times the time."""
    blocks: list[list[ast.AST]] = [list(ast.parse(source).body)]
    while blocks:
        block = blocks.pop()
        yield from block
        blocks += [inner for node in block for name in _BLOCKS if (inner := getattr(node, name, None))]


def source_files(root: Path, suffix: str, under: Sequence[str] = ()) -> list[Path]:
    """The files below `root` whose name ends with `suffix`, sorted, as paths relative to `root`.

    `under` keeps the files and folders that it names. A file that git still tracks but that is deleted is left out.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *(under or ["."])]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    paths = sorted({Path(name) for name in listing.split("\0") if name.endswith(suffix)})
    return [path for path in paths if (root / path).is_file()]
