"""Defects of windows: checks that age while a program sleeps, each of which `sleeping` must find."""

from typing import Any
from unittest.mock import patch

from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records import schedule as schedule_module
from penstock_service.topics import create_topic as create_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _late(module: Any, name: str) -> Patch:
    """The function, in a window that opens when it is called: behind the reads of its caller."""
    original = getattr(module, name)

    def late(instance: Any, _: UpdateWindow, *rest: Any, **named: Any) -> Any:
        return original(instance, UpdateWindow.open(instance.clock), *rest, **named)

    return patch.object(module, name, late)


def _unchecked() -> Patch:
    return patch.object(UpdateWindow, "check", lambda _: None)


def _by_one_clock() -> Patch:
    """The monotonic clock alone, which may stand still while the machine sleeps."""
    age = property(lambda window: window.clock.monotonic_ms() - window.opened.monotonic_ms)
    return patch.object(UpdateWindow, "age_ms", age)


SLEEPING_MUTANTS = (
    Mutant("window of a delayed record opens late", "timers,sleeping", lambda: _late(schedule_module, "_put")),
    Mutant("window is not checked: timers", "timers,sleeping", _unchecked),
    Mutant("window is not checked: claims", "claiming,sleeping", _unchecked),
    Mutant("window is not checked: segments", "traffic,sleeping", _unchecked),
    Mutant("window goes by one clock", "traffic,sleeping", _by_one_clock),
    Mutant("heads of a creation in a late window", "claiming,sleeping", lambda: _late(create_module, "create_heads")),
)
