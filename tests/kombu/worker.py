"""Real Celery workers as processes, and what their tasks have done."""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from celery import Celery

from penstock import Admin
from penstock.dev.service import LOCAL
from tests.kombu import celery_app
from tests.sdk.dev.conftest import Server
from tests.support.child_process import child_process
from tests.support.deadlines import until

_OURS = ("PENSTOCK_", "AWS_")
_LIVES_S_MAX = 600.0


class Worker:
    """One `celery worker` with its children."""

    def __init__(self, process: "subprocess.Popen[Any]", log: Path) -> None:
        self.process = process
        self._log = log

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def until_ready(self) -> None:
        until(lambda: " ready." in self.log() or self.process.poll() is not None, shown=self.log)
        assert self.process.poll() is None, self.log()

    def kill(self) -> None:
        """As the kernel does when memory runs out: the worker and its children, without a word."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """A warm shutdown: running tasks end, prefetched ones go back."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


class Workers:
    """Starts workers in a folder. `app` sends tasks from this process."""

    def __init__(self, server: Server, folder: Path) -> None:
        keys = server.service.callers[LOCAL].keys
        self._ends = ExitStack()
        self._folder = folder
        self._count = 0
        self.effects = folder / "effects"
        self.effects.touch()
        self.admin = Admin(transport=server.transport())
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_OURS)},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PENSTOCK_URL": server.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "EFFECTS": str(self.effects),
        }
        self.app = Celery("tests", broker="penstock://")
        self.app.conf.broker_transport_options = {"transport": server.transport()}

    def start(self, *options: str, **environment: object) -> Worker:
        """A worker that has said that it is ready. Its options are the command's, its settings celery_app's."""
        self._count += 1
        log = self._folder / f"worker-{self._count}.log"
        command = [sys.executable, "-m", "celery", "-A", celery_app.__name__, "worker", "-l", "info"]
        process = self._ends.enter_context(
            child_process(
                [*command, "-n", f"w{self._count}@tests", *options],
                deadline_s=_LIVES_S_MAX,
                cwd=self._folder,
                env={**self._environment, **{name: str(value) for name, value in environment.items()}},
                stdout=self._ends.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
        )
        worker = Worker(process, log)
        worker.until_ready()
        return worker

    def send(self, task: str, *arguments: object, **options: Any) -> str:
        """The id of a task that is sent."""
        return str(self.app.send_task(f"{celery_app.__name__}.{task}", arguments, **options).id)

    def seen(self, kind: str) -> Counter[str]:
        """Count the lines of this kind by task id."""
        lines = (line.split() for line in self.effects.read_text().splitlines())
        return Counter(words[2] for words in lines if words[0] == kind)

    def unfinished(self, queue: str = "celery") -> int:
        """The messages of a queue that are not acknowledged, but for delayed ones."""
        return sum(each.lag for each in self.admin.describe_share_group(queue).partitions)

    def until_seen(self, ids: set[str], kind: str = "effect") -> None:
        until(lambda: ids <= self.seen(kind).keys(), shown=lambda: f"{len(ids - self.seen(kind).keys())} are missing")

    def until_effects(self, count: int) -> None:
        until(lambda: len(self.seen("effect")) >= count)

    def until_finished(self) -> None:
        until(lambda: not self.unfinished(), shown=self.unfinished)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.close()
        self.app.close()
        self.admin.close()
