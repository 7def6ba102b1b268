"""Two files next to this module: which test found each mutant, and the mutants that no test can find, with the reason.

```
found.txt        <mutant> TAB <the test's id>
equivalent.txt   <mutant>, then the argument in lines of their own; an empty line between two mutants
```
`python -m tests.mutants` writes the first. You write the second.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.mutants.driver import Mutant, parse_mutant

FOUND = Path(__file__).with_name("found.txt")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def read_found() -> dict[Mutant, str]:
    """The test that found each mutant last."""
    lines = [line.split("\t") for line in FOUND.read_text().splitlines()]
    return {parse_mutant(text): test for text, test in lines}


def write_found(found: Mapping[Mutant, str]) -> None:
    """Writes the file anew, in the order of the mutants."""
    FOUND.write_text("".join(f"{mutant}\t{test}\n" for mutant, test in sorted(found.items())))


def read_equivalent() -> dict[Mutant, str]:
    """The argument for each mutant that no test can find."""
    arguments: dict[Mutant, str] = {}
    for paragraph in filter(str.strip, EQUIVALENT.read_text().split("\n\n")):
        name, *argument = paragraph.strip().splitlines()
        arguments[parse_mutant(name)] = " ".join(each.strip() for each in argument)
    return arguments
