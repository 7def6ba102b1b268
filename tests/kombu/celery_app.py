"""A Celery application that tests run in worker processes. Its effects are lines in the file that EFFECTS names."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery

import penstock_kombu

OPTIONS = ("lock_ms",)

assert penstock_kombu.Transport.driver_type == "penstock"

app = Celery("tests", broker="penstock://")
app.conf.update(
    task_acks_late=True,
    broker_transport_options={name: int(os.environ[name]) for name in OPTIONS if name in os.environ},
    task_reject_on_worker_lost=True,
)
task: Callable[..., Callable[[Callable[..., None]], Any]] = app.task  # Celery has no types


def note(line: str) -> None:
    """Append a line, in one write, so that lines of several processes stay whole."""
    with open(os.environ["EFFECTS"], "ab", buffering=0) as file:
        file.write(f"{line} {time.time():.3f}\n".encode())


@task(bind=True)
def effect(self: Any, name: str) -> None:
    """Take effect."""
    time.sleep(float(os.environ.get("PAUSE", "0")))
    note(f"effect {name} {self.request.id}")


@task(bind=True, max_retries=5)
def flaky(self: Any, name: str, failures: int, countdown: float) -> None:
    """Fail so often, then take effect."""
    if self.request.retries < failures:
        note(f"try {name} {self.request.id}")
        raise self.retry(countdown=countdown)
    note(f"effect {name} {self.request.id}")


@task(bind=True)
def slow(self: Any, name: str, gate: str) -> None:
    """Take effect once the file `gate` is there."""
    note(f"begin {name} {self.request.id}")
    while not Path(gate).exists():
        time.sleep(0.02)
    note(f"effect {name} {self.request.id}")


@task(bind=True)
def die_once(self: Any, died: str) -> None:
    """Kill the process the first time, and take effect the second time."""
    note(f"begin die_once {self.request.id}")
    if not Path(died).exists():
        Path(died).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    note(f"effect die_once {self.request.id}")
