"""One team at the full rate of its quota, beside another team: what that does to the other team's p99.

Team B calls at a steady pace. Rounds go in turns: B alone, then beside team A, whose clients send as much as their
quota lets them, and stay away when the service says so. One round comes before A has a quota, for comparison.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click

from bench.neighbours.callers import USERS, Calls, beside, fetch, paced, produce, topic, user
from bench.report.recording import Report, reported
from penstock import Admin
from penstock.http.transport import HttpTransport

RATIO_MAX = 1.5
QUOTA_AGE_S = 31  # a change of a quota holds everywhere after 30 s
CLIENTS = 4


@click.command(help=__doc__)
@reported("neighbours_teams")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Of each kind.")
@click.option("--seconds", default=15, show_default=True, type=click.IntRange(5), help="Of one round.")
@click.option(
    "--quota", default=1, show_default=True, type=click.IntRange(1), help="Team A's produces and fetches a second."
)
@click.option("--pause-ms", default=50, show_default=True, type=click.IntRange(0), help="Of team B, behind each call.")
def main(report: Report, rounds: int, seconds: int, quota: int, pause_ms: int) -> None:
    alone, beside_a = (Calls(), Calls()), (Calls(), Calls())
    unbounded, of_a, of_free_a = (Calls(), Calls()), Calls(), Calls()
    with (
        Admin() as admin,
        user("team-a") as a,
        user("team-b") as b,
        topic(admin, "a-1") as theirs,
        topic(admin, "b-1") as ours,
    ):

        def measure(calls: tuple[Calls, Calls]) -> None:
            def both() -> float:
                produce(b, ours, calls[0])
                return fetch(b, ours, calls[1])

            paced(both, seconds=seconds, pause_s=pause_ms / 1_000)

        paced(lambda: _warm(a, theirs), seconds=3, pause_s=0.1)
        measure((Calls(), Calls()))
        with _team(a, theirs, of_free_a):
            measure(unbounded)
        with _quota(admin, f"{USERS}team-a", {"produce_requests_per_s": quota, "fetch_requests_per_s": quota}):
            paced(lambda: _warm(a, theirs), seconds=QUOTA_AGE_S, pause_s=1.0)
            for _ in range(rounds):
                measure(alone)
                with _team(a, theirs, of_a):
                    measure(beside_a)
    names = ("produce", "fetch")
    kinds = (("alone", alone), ("beside team A", beside_a), ("beside team A without a quota", unbounded))
    report.show("team B", [pair[at].row(f"{name}, {kind}") for at, name in enumerate(names) for kind, pair in kinds])
    report.show("team A", [of_a.row("within its quota"), of_free_a.row("without a quota")])
    ratios = [round(beside_a[at].quantile_ms(0.99) / max(alone[at].quantile_ms(0.99), 0.1), 2) for at in (0, 1)]
    report.show(
        "p99 beside team A, as a multiple of p99 alone",
        [{"calls": name, "multiple": ratio, "bound": RATIO_MAX} for name, ratio in zip(names, ratios, strict=True)],
    )
    is_served = not any(calls.failed or calls.throttled for calls in (*alone, *beside_a))
    report.judge(holds=max(ratios) <= RATIO_MAX and is_served and of_a.throttled > 0)


def _warm(transport: HttpTransport, name: str) -> float:
    produce(transport, name, Calls())
    return fetch(transport, name, Calls())


@contextmanager
def _quota(admin: Admin, principal: str, limits: dict[str, int]) -> Iterator[None]:
    admin.set_quota("principal", principal, limits)
    try:
        yield
    finally:
        admin.delete_quota("principal", principal)


@contextmanager
def _team(transport: HttpTransport, name: str, calls: Calls) -> Iterator[None]:
    """Clients that produce and fetch as fast as they may."""

    def client(is_over: threading.Event, *, reads: bool) -> None:
        call = partial(fetch if reads else produce, transport, name, calls)
        while not is_over.wait(call()):
            pass

    with beside(*(partial(client, reads=number % 2 == 1) for number in range(CLIENTS))):
        yield
