"""What one console remembers between two requests."""

from dataclasses import dataclass

from penstock.console.account import AccountFacts
from penstock.console.background import Background
from penstock.console.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Figures that threads read. `account` is None for a local service: AWS knows nothing of it."""

    figures: Figures
    account: Background[AccountFacts] | None = None
