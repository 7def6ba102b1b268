"""What one console remembers between two requests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.console.account import AccountFacts
from penstock.console.background import Background
from penstock.console.figures import Figures
from penstock.console.lists import Lists
from penstock.jobs.model import JobPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Figures and lists that threads read. `account` is None for a local service, and for a caller without AWS keys.

    `job_places` open the places that run jobs, by name.
    """

    figures: Figures
    lists: Lists
    account: Background[AccountFacts] | None = None
    is_local: bool = True
    job_places: Mapping[str, Callable[[], JobPlace]] = field(default_factory=dict)
