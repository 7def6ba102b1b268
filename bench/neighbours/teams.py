"""One team at the full rate of its quota, beside another team: what that does to the other team's p99.

Team B calls at a steady pace. Rounds go in turns: B alone, then beside team A, whose clients send as much as their
quota lets them, and stay away when the service says so. One round comes before A has a quota, for comparison. Before
the rounds that count, both teams call together, so that the functions have the instances that this takes.

With `--elsewhere`, more rounds have team A on a second local stack, under the same quota. The two teams share nothing
there but the machine. So these rounds tell how much of the difference is the machine's. The run then judges what one
stack adds to that: the p99 beside team A, as a multiple of the p99 beside team A on the other stack. Without it, the
run judges the multiple of the p99 alone.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from bench.neighbours.callers import USERS, Calls, beside, fetch, paced, produce, topic, user
from bench.report.recording import Report, reported
from penstock import Admin
from penstock.configuration import StaticCredentials, find_configuration
from penstock.http.transport import HttpTransport
from penstock.local_files import LOCAL_ENV_NAMES, read_local_file

RATIO_MAX = 1.5
QUOTA_AGE_S = 31  # a change of a quota holds everywhere after 30 s
CLIENTS = 4
ALONE, BESIDE, UNBOUNDED = "alone", "beside team A", "beside team A without a quota"
ELSEWHERE = "beside team A on another stack"


@click.command(help=__doc__)
@reported("neighbours_teams")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Of each kind.")
@click.option("--seconds", default=12, show_default=True, type=click.IntRange(5), help="Of one round.")
@click.option(
    "--quota", default=1, show_default=True, type=click.IntRange(1), help="Team A's produces and fetches a second."
)
@click.option("--pause-ms", default=50, show_default=True, type=click.IntRange(0), help="Of team B, behind each call.")
@click.option("--elsewhere", type=click.Path(exists=True, path_type=Path), help="The local.env of a second stack.")
def main(report: Report, rounds: int, seconds: int, quota: int, pause_ms: int, elsewhere: Path | None) -> None:
    kinds = {name: (Calls(), Calls()) for name in (ALONE, BESIDE, UNBOUNDED, *((ELSEWHERE,) if elsewhere else ()))}
    of_a, of_free_a, of_a_elsewhere = Calls(), Calls(), Calls()
    with ExitStack() as stack:
        a = stack.enter_context(_team_a(os.environ))
        b = stack.enter_context(user("team-b"))
        ours = stack.enter_context(topic(stack.enter_context(Admin()), "b-1"))

        def measure(calls: tuple[Calls, Calls]) -> None:
            def both() -> float:
                produce(b, ours, calls[0])
                return fetch(b, ours, calls[1])

            paced(both, seconds=seconds, pause_s=pause_ms / 1_000)

        paced(a.warm, seconds=3, pause_s=0.1)
        measure((Calls(), Calls()))
        with a.calling(of_free_a):
            measure(kinds[UNBOUNDED])
        others = [(a, BESIDE, of_a)]
        if elsewhere:
            others.append(
                (stack.enter_context(_team_a(read_local_file(elsewhere, LOCAL_ENV_NAMES))), ELSEWHERE, of_a_elsewhere)
            )
        for team, _, _ in others:
            stack.enter_context(team.bounded(quota))
        paced(lambda: max(team.warm() for team, _, _ in others), seconds=QUOTA_AGE_S, pause_s=1.0)
        for team, _, _ in others:  # what comes now needs as many instances of the functions as the rounds below
            with team.calling(Calls()):
                measure((Calls(), Calls()))
        for _ in range(rounds):
            measure(kinds[ALONE])
            for team, kind, calls in others:
                with team.calling(calls):
                    measure(kinds[kind])
    names = ("produce", "fetch")
    report.show(
        "team B", [pair[at].row(f"{name}, {kind}") for at, name in enumerate(names) for kind, pair in kinds.items()]
    )
    report.show(
        "team A",
        [of_a.row("within its quota"), of_free_a.row("without a quota")]
        + ([of_a_elsewhere.row("on another stack")] if elsewhere else []),
    )
    ratios = {kind: [_ratio(kinds[kind][at], kinds[ALONE][at]) for at in (0, 1)] for kind in kinds if kind != ALONE}
    report.show(
        "p99 of team B, as a multiple of p99 alone",
        [
            {"calls": f"{name}, {kind}", "multiple": found[at]}
            for at, name in enumerate(names)
            for kind, found in ratios.items()
        ],
    )
    base = ELSEWHERE if elsewhere else ALONE
    judged = [_ratio(kinds[BESIDE][at], kinds[base][at]) for at in (0, 1)]
    report.show(
        f"p99 of team B {BESIDE}, as a multiple of p99 {base}",
        [{"calls": name, "multiple": judged[at], "bound": RATIO_MAX} for at, name in enumerate(names)],
    )
    is_served = not any(calls.failed or calls.throttled for calls in (*kinds[ALONE], *kinds[BESIDE]))
    report.judge(holds=max(judged) <= RATIO_MAX and is_served and of_a.throttled > 0)


def _ratio(calls: Calls, alone: Calls) -> float:
    return round(calls.quantile_ms(0.99) / max(alone.quantile_ms(0.99), 0.1), 2)


@dataclass(frozen=True, slots=True)
class _Team:
    """Team A on one stack: its user, its topic, and the operator who bounds it."""

    admin: Admin
    transport: HttpTransport
    topic: str

    def warm(self) -> float:
        """One call of each kind."""
        produce(self.transport, self.topic, Calls())
        return fetch(self.transport, self.topic, Calls())

    @contextmanager
    def bounded(self, quota: int) -> Iterator[None]:
        """A quota of so many produces and so many fetches a second."""
        principal = f"{USERS}team-a"
        self.admin.set_quota("principal", principal, {"produce_requests_per_s": quota, "fetch_requests_per_s": quota})
        try:
            yield
        finally:
            self.admin.delete_quota("principal", principal)

    @contextmanager
    def calling(self, calls: Calls) -> Iterator[None]:
        """Clients that produce and fetch as fast as they may."""

        def client(is_over: threading.Event, *, reads: bool) -> None:
            call = partial(fetch if reads else produce, self.transport, self.topic, calls)
            while not is_over.wait(call()):
                pass

        with beside(*(partial(client, reads=number % 2 == 1) for number in range(CLIENTS))):
            yield


@contextmanager
def _team_a(environ: Mapping[str, str]) -> Iterator[_Team]:
    found = find_configuration(environ=environ)
    keys = StaticCredentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"])  # of that stack's operator
    with (
        Admin(transport=HttpTransport(replace(found, credentials=keys), timeout_s=40)) as admin,
        user("team-a", environ) as transport,
        topic(admin, "a-1") as name,
    ):
        yield _Team(admin, transport, name)
