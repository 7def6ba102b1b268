"""Runs on this machine: Spark in local mode, against the local stack, recorded under `.penstock/jobs/`.

```
.penstock/jobs/<run id>/  run.json   job, arguments, when it was started
                          lock       locked for as long as the run's process lives
                          out, err   what it printed
                          ended.json when and how it ended; without it and without a lock the process was killed
```
The run's process is that of supervise.py, which goes on when the command that started it ends.
"""

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from penstock.jobs.model import JobRun, RunState, unknown_job, unknown_run
from penstock.local_files import FOLDER, JOBS_ENV_NAMES, find_local_file, read_local_file
from penstock_core.errors import ErrorCode, PenstockError

PREFIX = "local-"
SCRIPTS = Path("glue_jobs/penstock_spark/scripts")
STATE_FOLDER = FOLDER
JOBS_ENV = "jobs.env"
_PACKAGE_FOLDERS = (Path("functions"), Path("sdk"), Path("glue_jobs"))


class LocalPlace:
    """Runs the scripts of a checkout, and records the runs in the state folder of the local stack that is near."""

    poll_s = 0.2

    def __init__(self, checkout: Path, *, cores: int | None = None, memory: str = "2g") -> None:
        self._checkout = checkout
        self._cores = cores
        self._memory = memory
        self._state = _state_folder(checkout)

    def jobs(self) -> list[str]:
        """The names of the scripts, sorted."""
        return sorted(path.stem for path in (self._checkout / SCRIPTS).glob("[!_]*.py"))

    def start(self, job: str, arguments: Sequence[str]) -> JobRun:
        """Start the job's process.

        Raises INVALID_CONFIG if Java, pyspark or the local stack is missing; the message tells the way out.
        """
        if job not in self.jobs():
            raise unknown_job(job, self.jobs())
        environment = self._environment()
        started_at_ms = _now_ms()
        run_id = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started_at_ms / 1_000))}-{secrets.token_hex(3)}"
        folder = self._state / "jobs" / run_id
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        record = {"job": job, "arguments": list(arguments), "started_at_ms": started_at_ms}
        (folder / "run.json").write_text(json.dumps(record))
        command = [*self._command(job), *arguments]
        with (folder / "lock").open("w") as lock, (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-m", "penstock.jobs.supervise", str(folder), *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        return self.find(run_id)

    def usage(self, job: str) -> str:
        """The options of the job, as its `--help` prints them. Starts no run."""
        if job not in self.jobs():
            raise unknown_job(job, self.jobs())
        return subprocess.run(  # noqa: S603 - our own script
            [*self._command(job), "--help"],
            env={**os.environ, **self._path()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def runs(self) -> list[JobRun]:
        """The recorded runs, latest first."""
        found = [self.find(path.parent.name) for path in (self._state / "jobs").glob(f"{PREFIX}*/run.json")]
        return sorted(found, key=lambda run: (run.started_at_ms, run.run_id), reverse=True)

    def find(self, run_id: str) -> JobRun:
        """The run as it is now. Raises INVALID_NAME for an unknown run."""
        folder = self._folder(run_id)
        record = json.loads((folder / "run.json").read_text())
        # Look at the lock first: the process writes its end, then gives up the lock.
        is_alive = _is_locked(folder / "lock")
        ended = json.loads((folder / "ended.json").read_text()) if (folder / "ended.json").exists() else None
        state, detail = RunState.RUNNING, _latest_line(folder / "out")
        if ended is not None:
            state = RunState.SUCCEEDED if ended["exit_code"] == 0 else RunState.FAILED
            detail = detail if ended["exit_code"] == 0 else _latest_line(folder / "err") or f"exit {ended['exit_code']}"
        elif not is_alive:
            state, detail = RunState.FAILED, "its process was killed"
        return JobRun(
            run_id=run_id,
            job=record["job"],
            where="local",
            state=state,
            started_at_ms=record["started_at_ms"],
            ended_at_ms=ended and ended["ended_at_ms"],
            detail=detail,
        )

    def logs(self, run_id: str) -> Iterator[str]:
        """The lines of the run's standard error, then of its standard output."""
        folder = self._folder(run_id)
        for name in ("err", "out"):
            with (folder / name).open(errors="replace") as lines:
                yield from (line.rstrip("\n") for line in lines)

    def _folder(self, run_id: str) -> Path:
        folder = self._state / "jobs" / run_id
        if not run_id.startswith(PREFIX) or os.sep in run_id or not (folder / "run.json").exists():
            raise unknown_run(run_id, str(self._state))
        return folder

    def _environment(self) -> dict[str, str]:
        _check_java()
        if find_spec("pyspark") is None:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"{sys.executable} has no pyspark: pip install 'penstock[spark]'"
            )
        master = f"local[{self._cores or '*'}]"
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "WARN",
        }
        submit = [f"--conf {name}={value}" for name, value in settings.items()]
        return {
            **os.environ,
            **self._storage(),
            **self._path(),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--master {master} --driver-memory {self._memory} {' '.join(submit)} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def _command(self, job: str) -> list[str]:
        return [sys.executable, str(self._checkout / SCRIPTS / f"{job}.py")]

    def _path(self) -> Mapping[str, str]:
        """The search path for Penstock's packages."""
        path = [str(self._checkout / folder) for folder in _PACKAGE_FOLDERS]
        return {"PYTHONPATH": os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])}

    def _storage(self) -> Mapping[str, str]:
        """The storage of the local stack that is near, unless the environment names one."""
        if os.environ.get("PENSTOCK_TOPICS_TABLE") or os.environ.get("PENSTOCK_STACK"):
            return {}
        path = self._state / JOBS_ENV
        if not path.exists():
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"there is no {path}: start a local stack with `penstock local up`, or set PENSTOCK_STACK to the "
                "name of a deployed one, to run Spark here on its data",
            )
        return read_local_file(path, JOBS_ENV_NAMES)


def _state_folder(checkout: Path) -> Path:
    """The state folder of the working directory or of a parent, else the checkout's."""
    found = find_local_file(JOBS_ENV)
    return checkout / STATE_FOLDER if found is None else found.parent


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            "Spark needs Java 17 or newer, and there is no `java` on the PATH: install one (Debian: apt install "
            "openjdk-17-jre-headless), or set JAVA_HOME",
        )


def _is_locked(path: Path) -> bool:
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _latest_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
