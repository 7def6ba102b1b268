"""A real text that every machine with Python has: the sources of its standard library, by path."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

LINES_MIN = 100_000
BYTES_MIN = 10_000_000
SOURCES = Path(sysconfig.get_paths()["stdlib"])


def write_corpus(target: Path) -> tuple[int, int]:
    r"""Writes `<path>\t<line>\n` for each line of whole source files. Returns the numbers of lines and bytes.

    It stops when it has at least `LINES_MIN` lines and `BYTES_MIN` bytes of text. The same Python gives the same file.
    """
    lines = text_bytes = 0
    with target.open("wb") as out:
        for path in _sources():
            name = str(path.relative_to(SOURCES)).encode()
            for line in path.read_bytes().splitlines():
                out.write(name + b"\t" + line + b"\n")
                lines += 1
                text_bytes += len(line)
            if lines >= LINES_MIN and text_bytes >= BYTES_MIN:
                return lines, text_bytes
    raise RuntimeError(
        f"the standard library in {SOURCES} has {lines} lines, {text_bytes} bytes: too little to show anything"
    )


def read_corpus(source: Path) -> Iterator[tuple[bytes, bytes]]:
    """The records in order: the path of a source file is the key, one of its lines is the value."""
    with source.open("rb") as lines:
        for line in lines:
            key, _, value = line.rstrip(b"\n").partition(b"\t")
            yield key, value


def _sources() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*.py") if "site-packages" not in path.parts)
