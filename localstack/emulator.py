"""The emulator's process: start it, find it, and stop it with every process that it started.

The process inherits a locked file and keeps it locked until it ends. While the file is locked, the pid on disk belongs
to the emulator and to no other program. The process leads a process group, which the workers of functions belong to.

MiniStack's own virtual environment. Its workers see its packages, so Penstock's packages must not be in it.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from localstack.clients import ACCOUNT, HOST, REGION, endpoint_url
from localstack.errors import LocalStackError
from localstack.locks import is_locked, open_lock, try_lock
from localstack.places import CACHE, CHECKOUT, Places

DEFAULT_PORT = 4566
_START_S_MAX = 60
_STOP_S_MAX = 60  # the emulator writes its state when it stops
_SIGNAL_AGAIN_S = 2
_KILL_S_MAX = 5
_POLL_S = 0.05
_LAUNCHER = Path(__file__).with_name("launch_ministack.py")
LOCK_FILE = CHECKOUT / "requirements" / "ministack.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """A running emulator: the pid that leads its process group, and the port that it listens on, at 127.0.0.1."""

    pid: int
    port: int


def find_emulator(places: Places) -> Emulator | None:
    """Returns the emulator that runs on this state directory, None if none runs."""
    if not is_locked(places.lock) or not places.process.exists():
        return None
    return Emulator(**json.loads(places.process.read_text()))


def last_port(places: Places) -> int | None:
    """Returns the port of the latest emulator of this state directory, running or not. None if there was none."""
    return int(json.loads(places.process.read_text())["port"]) if places.process.exists() else None


def start_emulator(places: Places, python: Path, port: int) -> Emulator:
    """Starts MiniStack on the port and waits until it answers.

    Raises LocalStackError if the port is taken or the emulator does not come up.
    """
    _check_port(port)
    lock = open_lock(places.lock)
    try:
        if not try_lock(lock, within_s=0.5):  # is_locked may hold it for an instant
            raise LocalStackError(f"an emulator already runs on {places.state_dir}: stop it with `penstock local down`")
        os.set_inheritable(lock, True)
        places.temporary.mkdir(parents=True, exist_ok=True)
        with places.log.open("wb") as log:
            process = subprocess.Popen(
                [str(python), "-I", str(_LAUNCHER)],
                env=_environment(places, port),
                cwd=places.state_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,
            )
    finally:
        os.close(lock)
    emulator = Emulator(pid=process.pid, port=port)
    places.process.write_text(json.dumps(asdict(emulator)))
    _wait_until_ready(process, emulator, places)
    return emulator


def stop_emulator(places: Places) -> Emulator | None:
    """Stops the emulator with its workers and returns it. None if no emulator runs.

    SIGTERM lets the emulator save its state. After `_STOP_S_MAX` it is killed, and LocalStackError says so.
    """
    emulator = find_emulator(places)
    if emulator is None:
        return None
    deadline = time.monotonic() + _STOP_S_MAX
    while is_locked(places.lock) and time.monotonic() < deadline:
        # Signal the whole group, because the emulator would wait for workers inside a long poll. Signal it again, for
        # workers that started since, and for the emulator once it has saved its state and waits for its threads.
        _signal_group(emulator.pid, signal.SIGTERM)
        _signal_group(emulator.pid, signal.SIGCONT)  # frozen workers (like_aws/workers.py) heed SIGTERM only then
        _wait_for_end(places, _SIGNAL_AGAIN_S)
    is_killed = is_locked(places.lock)
    _kill_group(emulator.pid)
    shutil.rmtree(places.temporary, ignore_errors=True)
    if is_killed:
        raise LocalStackError(
            f"the emulator (pid {emulator.pid}) did not stop within {_STOP_S_MAX} s and was killed: what was written "
            f"to tables since it started is lost. Its log is {places.log}"
        )
    return emulator


def _check_port(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise LocalStackError(
                f"port {port} on {HOST} cannot be used ({error.strerror}): stop what listens there, or choose another "
                f"port with `penstock local up --port {port + 1}`"
            ) from error


def _environment(places: Places, port: int) -> dict[str, str]:
    """Returns the environment of the emulator and its functions, without your AWS configuration.

    It does not set AWS_ENDPOINT_URL, because the emulator gives it to its functions.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PENSTOCK_SESSIONS") if name in os.environ}
    return kept | {
        "AUTH": "true",
        "BIND_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_REGION": REGION,
        "PERSIST_STATE": "1",
        "STATE_DIR": str(places.tables),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(places.objects),
        "TMPDIR": str(places.temporary),
        "DOCKER_HOST": f"unix://{places.temporary}/no-docker.sock",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def _wait_until_ready(process: subprocess.Popen[bytes], emulator: Emulator, places: Places) -> None:
    deadline = time.monotonic() + _START_S_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LocalStackError(f"the emulator ended with exit code {process.returncode}:\n{_last_words(places)}")
        if _is_ready(emulator.port):
            return
        time.sleep(_POLL_S)
    _kill_group(emulator.pid)
    raise LocalStackError(f"the emulator did not answer within {_START_S_MAX} s:\n{_last_words(places)}")


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint_url(port)}/_ministack/health", timeout=1) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _last_words(places: Places) -> str:
    return places.log.read_text(errors="replace")[-2000:].strip()


def _wait_for_end(places: Places, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while is_locked(places.lock) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _kill_group(leader: int) -> None:
    """Kills the rest of the emulator's group and waits until no process of it is left."""
    deadline = time.monotonic() + _KILL_S_MAX
    while _signal_group(leader, signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _signal_group(leader: int, number: signal.Signals) -> bool:
    """Signals the group. False if it has no process any more."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    return True


def ministack_python() -> Path | None:
    """Returns the Python that has the locked MiniStack, None if it is not installed yet."""
    python = _folder() / "bin" / "python"
    return python if python.exists() else None


def install_ministack() -> Path:
    """Installs MiniStack by hash and returns its Python. Downloads about 20 MB.

    The folder gets its name when it is complete, so an interrupted or concurrent installation does no harm.
    """
    folder = _folder()
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="ministack-") as work:
        made = Path(work) / "venv"
        _run([sys.executable, "-m", "venv", "--without-pip", str(made)])
        pip = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python")]
        _run([*pip, "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(LOCK_FILE)])
        try:
            os.rename(made, folder)
        except OSError:
            if ministack_python() is None:
                raise
    for old in CACHE.glob("ministack-*"):
        if old != folder and (old / "pyvenv.cfg").exists():
            shutil.rmtree(old, ignore_errors=True)
    return folder / "bin" / "python"


def _folder() -> Path:
    key = hashlib.sha256(LOCK_FILE.read_bytes() + f"{sys.base_prefix} {sys.version}".encode()).hexdigest()[:12]
    return CACHE / f"ministack-{key}"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalStackError(f"{' '.join(command[1:])} failed:\n{done.stderr.strip()[-2000:]}")
