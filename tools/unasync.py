"""`python -m tools.unasync`: write the threaded clients from the asynchronous ones, which are the source.

The rules below turn a source into its twin, and ruff drops the imports that the twin does not need. A line that must
differ says so in the source, and everything else is the same for both:

    batch = await self._future()  # sync: batch = self._delivery()
    # sync: a line of the twin alone

A marker behind the first or the last line of a statement replaces the whole statement. A marker without code drops it.
`--check` writes nothing, and fails if a twin is not what its source makes.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import click

MARKER = re.compile(r"(?:^|  )# sync:(?: (.*))?$")
_ROOT = Path(__file__).parent.parent
_SDK = "sdk/penstock"

# The threaded twin by its asynchronous source.
TWINS = {
    f"{_SDK}/{source}": f"{_SDK}/{twin}"
    for source, twin in (
        (f"{room}/async_{name}.py", f"{room}/{name}.py")
        for room, names in {
            "admin": ("admin",),
            "consumer": ("consumer", "fetcher"),
            "dead_letters": ("dead_letters",),
            "group": ("heartbeater", "stages"),
            "http": ("client", "transport"),
            "producer": ("producer", "sender", "transaction"),
            "share": ("runner", "share_consumer", "share_driver"),
            "transformer": ("transformer",),
            "transports": ("by_auto", "by_lambda"),
            "wake_ups": ("waker",),
        }.items()
        for name in names
    )
}

# In this order, in code and in prose. Sentences that are true of an event loop alone go.
_OF_LOOPS = r"event loop|coroutine|cancellation|is cancelled|penstock\[async\]|is not\s+awaited"
RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bAn `async\s+with`", "A `with`"),
        (r"\bA\s+producer\s+belongs\s+to\s+one\s+event\s+loop:", "Several threads may use one producer:"),
        (
            r"\bUse a consumer\s+from one\s+event loop,\s+and\s+read\s+from\s+one\s+task\.",
            "Use a consumer\n    from one thread.",
        ),
        (r"\bIt belongs to one event\s+loop(, and to any number\s+of\s+its tasks)?\.", "Several threads may use one."),
        (
            r"Records that are not delivered when the\s+loop\s+ends have failed\.",
            "A producer that is still open when the\n    interpreter exits has ten seconds to deliver.",
        ),
        (r"\btasks of the event loop\b", "background threads"),
        (rf"(?<=[.`])\s+[A-Z`](?:[^.]|\.(?=\w))*?\b(?:{_OF_LOOPS})(?:[^.]|\.(?=\w))*\.(?=\s|\"\"\")", ""),
        (r"\basyncio\.to_thread\(\s*([^,]+?),\s*", r"\1("),
        (r"\basyncio\.Future\[RecordMetadata\]", "Delivery"),
        (r"\bawait asyncio\.sleep\(", "time.sleep("),
        (r"\bimport asyncio\b", "import time"),
        (r"\basync (def|with|for)\b", r"\1"),
        (r"`async with`", "`with`"),
        (r"\bawait sent\b(?: {9})?", "sent.result()"),
        (r"\bawait ", ""),
        (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
        (r"\bStopAsync(?=[A-Z])", "Stop"),
        (r"\ban `Async(?=[A-Z])", "a `"),
        (r"\bAsync(?=[A-Z])", ""),
        (r"\basync_(?=\w)|(?<=_)async_(?=\w)|(?<=\w)_async\b", ""),
        (r"\btask(s?)\b", r"thread\1"),
    )
]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--check", is_flag=True, help="Write nothing, and fail if a twin is stale.")
def main(check: bool) -> None:
    """Write the threaded twins of the asynchronous clients."""
    stale = []
    for source, twin in TWINS.items():
        text = twin_of(source, (_ROOT / source).read_text(encoding="utf-8"))
        path = _ROOT / twin
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(twin)
        if not check:
            path.write_text(text, encoding="utf-8")
    for twin in stale:
        click.echo(f"{twin} is stale: run `python -m tools.unasync`" if check else f"{twin} written")
    sys.exit(check and bool(stale))


def twin_of(name: str, source: str) -> str:
    """The threaded twin of a module, formatted. `name` is the source's path."""
    text = _with_markers_applied(source)
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    header = f"# Generated from {Path(name).name} by `python -m tools.unasync`: change that file.\n"
    checked = _ruff(["check", "--fix", "--quiet", "--select", "F401,I001"], name, header + text)
    return _ruff(["format", "--quiet"], name, checked)


def _with_markers_applied(source: str) -> str:
    lines = source.splitlines(keepends=True)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt | ast.ExceptHandler)]
    changes: list[tuple[int, int, str]] = []  # first and last line, counted from 1, and the text in their place
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        match = MARKER.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line = token.start[0]
        is_alone = not token.line[: token.start[1]].strip()
        first, last = (line, line) if is_alone else _extent(nodes, line)
        indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
        is_blank = is_alone and token.string == "# sync:"
        changes.append((first, last, f"{indent}{match[1]}\n" if match[1] else "\n" * is_blank))
    for first, last, text in sorted(changes, reverse=True):
        lines[first - 1 : last] = [text]
    return "".join(lines)


def _extent(nodes: list[ast.stmt | ast.ExceptHandler], line: int) -> tuple[int, int]:
    """The lines of the largest statement that begins at a line, else of the smallest one that ends there."""
    begun = [node for node in nodes if node.lineno == line]
    if begun:
        node = max(begun, key=lambda each: each.end_lineno or 0)
    else:
        node = max((each for each in nodes if each.end_lineno == line), key=lambda each: each.lineno)
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)]), node.end_lineno or line


def _ruff(arguments: list[str], name: str, text: str) -> str:
    command = [str(Path(sys.executable).parent / "ruff"), *arguments, "--stdin-filename", name, "-"]
    done = subprocess.run(command, cwd=_ROOT, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"ruff refuses the twin of {name}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
