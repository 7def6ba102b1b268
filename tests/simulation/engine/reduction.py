"""What a run leaves out of what its seed would do. A shrunk run is a seed with a reduction."""

import re
from dataclasses import dataclass, fields
from math import inf

_SEPARATOR = "; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What is left out. Nothing, by default.

    - `faults_max`: no fault strikes after so many. `no_faults`: kinds of fault that never strike.
    - `ends_ms`: clients end with the request that they have sent by this time. Readers read on to the end.
    - `steps_max`: a run with more steps fails. The text does not tell it.
    - `no_clients`: the numbers of clients that never begin, in the order in which the workloads start them.
    """

    faults_max: float = inf
    no_faults: frozenset[str] = frozenset()
    ends_ms: float = inf
    no_clients: frozenset[int] = frozenset()
    steps_max: float = inf

    def __str__(self) -> str:
        texts = {
            "faults_max": f"{self.faults_max:.0f}",
            "no_faults": ",".join(sorted(self.no_faults)),
            "ends_ms": f"{self.ends_ms!r}",
            "no_clients": ",".join(map(str, sorted(self.no_clients))),
        }
        return _SEPARATOR.join(f"{name}={text}" for name, text in texts.items() if text not in ("", "inf"))


NOTHING = Reduction()


def parse_reduction(text: str) -> Reduction:
    """The reduction that has this text. Raises ValueError if none has."""
    known = {each.name for each in fields(Reduction)}
    given = dict(re.findall(r"(\w+)=([^;]*)(?:;|$)", text))
    reduction = Reduction(
        faults_max=float(given.get("faults_max", inf)),
        no_faults=frozenset(filter(None, given.get("no_faults", "").split(","))),
        ends_ms=float(given.get("ends_ms", inf)),
        no_clients=frozenset(map(int, filter(None, given.get("no_clients", "").split(",")))),
    )
    if not given.keys() <= known or str(reduction) != text:
        raise ValueError(f"{text!r} is no reduction: a failing run prints one")
    return reduction
