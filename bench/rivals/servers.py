"""Debian's servers, as processes of this run: on 127.0.0.1, at a free port, with a temporary folder."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

_START_S = 90
HOW_TO_GET_THEM = (
    "apt-get install --no-install-recommends redis-server rabbitmq-server nats-server, "
    "then pip install --require-hashes -r requirements/bench.txt"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How to start a server: its command line and its environment."""

    line: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def find_program(*names: str) -> str | None:
    """The first of these programs that this machine has. RabbitMQ's own script is not on the PATH."""
    return next((found for name in names if (found := shutil.which(name, path=_PATH))), None)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(command: Command, folder: Path, port: int) -> Iterator[None]:
    """Runs a server until the end of the block. Raises ClickException if it does not listen in time."""
    log = folder / "server.log"
    environment = {"PATH": _PATH, "HOME": str(folder), "LANG": "C.UTF-8", **command.environment}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.line, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _await_port(process, port, log)
        yield
    finally:
        _end(process)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A folder that is removed with all that a server wrote."""
    with tempfile.TemporaryDirectory(prefix=f"penstock-bench-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def start_redis(stack: ExitStack) -> int | None:
    """Redis with a file of appends that is synced before each answer. Returns its port, None if it is missing."""
    program = find_program("redis-server")
    if program is None:
        return None
    port, folder = free_port(), stack.enter_context(temporary_folder("redis"))
    options = {"bind": "127.0.0.1", "port": str(port), "dir": str(folder), "appendonly": "yes"}
    options |= {"appendfsync": "always", "save": "", "daemonize": "no"}
    line = [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
    stack.enter_context(running(Command(line=line), folder, port))
    return port


def start_nats(stack: ExitStack) -> int | None:
    """NATS with JetStream in files. Returns its port, None if it is missing.

    `sync_interval: always` exists from 2.10 on. An older server refuses it, and runs without.
    """
    program = find_program("nats-server")
    if program is None:
        return None
    port, folder = free_port(), stack.enter_context(temporary_folder("nats"))
    sync = "sync_interval: always" if nats_syncs() else ""
    configuration = folder / "server.conf"
    configuration.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "{folder}/store"\n  {sync}\n}}\n')
    stack.enter_context(running(Command(line=[program, "-c", str(configuration)]), folder, port))
    return port


def nats_syncs() -> bool:
    """True if the server can sync each message: from 2.10 on."""
    program = find_program("nats-server")
    if program is None:
        return False
    words = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return tuple(map(int, words[-1].lstrip("v").split(".")[:2])) >= (2, 10)


def start_rabbitmq(stack: ExitStack) -> int | None:
    """RabbitMQ with Erlang's port mapper as a process of this run. Returns its port, None if it is missing."""
    program = find_program("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
    mapper = find_program("epmd")
    if program is None or mapper is None:
        return None
    folder = stack.enter_context(temporary_folder("rabbitmq"))
    mapper_port, port = free_port(), free_port()
    mapping = Command(line=[mapper, "-address", "127.0.0.1", "-port", str(mapper_port)])
    stack.enter_context(running(mapping, folder, mapper_port))
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (folder / "enabled_plugins").write_text("[].\n")
    environment = {
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper_port),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    stack.enter_context(running(Command(line=[program], environment=environment), folder, port))
    return port


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2_000:]
    raise click.ClickException(f"{process.args!r} does not listen on {port}:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its children: they are a group of their own."""
    for number, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
