"""The release of this code. The service tells it (`GET /v1/zones`), and `penstock doctor` compares it with its own."""

from collections.abc import Sequence

RELEASES = ("0.1.0",)  # in order. A stage takes one after the other, and skips none (docs/adr/0036)
VERSION = RELEASES[-1]


def refusal_of_step(deployed: str, new: str, releases: Sequence[str] = RELEASES) -> str:
    """Why a stage of the release `deployed` may not go to `new`, with the way out; "" if it may.

    A stage may go to the next release, back to the one before, and deploy its own again. `releases` are those that
    `new` knows.
    """
    if deployed not in releases:
        return f"the stage runs {deployed}, which {new} does not know: use that release, or a later one"
    there, wanted = releases.index(deployed), releases.index(new)
    if abs(wanted - there) <= 1:
        return ""
    step = 1 if wanted > there else -1
    between = releases[there + step : wanted : step]
    return f"the stage runs {deployed}: deploy {', then '.join(between)} before {new}"
