"""One bash and one Python session, which run a page's snippets as a reader would, in a shell without a virtual
environment.

Each session runs a file, with standard output and standard error in files next to it, and says on a pipe how
that went. The next snippet finds the variables, background processes and working directory that the last one left.
"""

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_ANSWERS = "SNIPPET_ANSWERS"  # names the pipe that a session answers on

_BASH = """
set -E -o pipefail
trap '__failed="$__failed  line $LINENO: $BASH_COMMAND;"' ERR
while read -r __file; do
    __failed=
    . "$__file" >"$__file.out" 2>"$__file.err" </dev/null
    printf 'ended:%s\\n' "${__failed//$'\\n'/ }" >&$SNIPPET_ANSWERS
done
"""

_PYTHON = """
def main():
    import ast, asyncio, inspect, os, sys, traceback, types
    answers, requests = os.fdopen(int(os.environ.pop("SNIPPET_ANSWERS")), "w"), os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with asyncio.Runner() as runner:
        for path in map(str.strip, iter(requests.readline, "")):
            for descriptor, end in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(path + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            failed = ""
            try:
                code = compile(open(path).read(), path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                made = types.FunctionType(code, globals())()
                if inspect.iscoroutine(made):
                    runner.run(made)
            except BaseException as error:
                traceback.print_exc()
                failed = repr(error).replace(chr(10), " ")
            sys.stdout.flush()
            sys.stderr.flush()
            print("ended:" + failed, file=answers, flush=True)
main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a snippet. `failure` is empty, or names the commands or the exception that failed."""

    stdout: str
    stderr: str
    failure: str


class Session:
    """A process that runs files one by one. Closing it kills all processes that the snippets have left running."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        answers, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**environment, _ANSWERS: str(writer)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[writer],
                start_new_session=True,
                text=True,
            )
        finally:
            os.close(writer)
        self._answers = os.fdopen(answers)

    def run(self, file: Path, timeout_s: float) -> Run:
        """Runs the file. Raises TimeoutError, or RuntimeError if the session has ended with it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{file}\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            is_answered = bool(selector.select(timeout_s))
        answer = self._answers.readline() if is_answered else ""
        output, errors = (file.with_name(file.name + end) for end in (".out", ".err"))
        stdout, stderr = (each.read_text(errors="replace") if each.exists() else "" for each in (output, errors))
        if not is_answered:
            raise TimeoutError(f"it did not end within {timeout_s:.0f} s; it printed\n{stdout}\n{stderr}")
        if not answer:
            raise RuntimeError(f"it ended the session; it printed\n{stdout}\n{stderr}")
        return Run(stdout=stdout, stderr=stderr, failure=answer.removeprefix("ended:").strip())

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def bash_session(folder: Path, environment: Mapping[str, str]) -> Session:
    return Session(["bash", "--noprofile", "--norc", "-c", _BASH], folder, environment)


def python_session(python: str, folder: Path, environment: Mapping[str, str]) -> Session:
    """`python` is the interpreter as the page names it, from `folder`."""
    return Session([python, "-c", _PYTHON], folder, environment)


def reader_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a reader's new shell: nothing of AWS, Penstock, Python or an active virtual environment."""
    dropped = ("AWS_", "PENSTOCK_", "PYTHON", "PYTEST", "PYSPARK", "SPARK_", "VIRTUAL_ENV", "COV_")
    kept = {name: value for name, value in environ.items() if not name.startswith(dropped)}
    folders = [each for each in kept.get("PATH", "").split(os.pathsep) if ".venv" not in Path(each).parts]
    return kept | {"PATH": os.pathsep.join(folders), "COLUMNS": "100", "TERM": "dumb"}
