"""`penstock prove`: show on a deployed stage what no emulator can show, and read the bill of that a day later."""

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.local import find_checkout
from penstock.cli.options.settings import YES, confirm
from penstock.cli.options.times import DURATION
from penstock.cli.proven import PROFILES, calls_of, check_url, name_of, place_of, stage_of
from penstock.cli.service import CommandError
from penstock.cli.tables import show_table
from penstock.doctor.finding import redacted
from penstock.errors import ConnectionFailedError
from penstock.prove.all_rows import all_rows
from penstock.prove.bill import read_bill
from penstock.prove.leftover_kinds import undoings
from penstock.prove.leftovers import FILE_NAME, STACK, STAGE_PREFIX, Leftovers
from penstock.prove.own_stage import DEPLOYED_USD_MAX, DESTROY_SECONDS, deploy, destroy, stack_of
from penstock.prove.proof import Ruling
from penstock.prove.prove_report import JSON_NAME, MARKDOWN_NAME, ProveReport
from penstock.prove.prove_run import STAGE_USD_MAX, ProofBudget, ProveRun
from penstock.prove.proven_stage import ProvenStage
from penstock.system import monotonic_ms, new_nonce, wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.text import escaped

_STYLES = {
    Ruling.HOLDS: "green",
    Ruling.DOES_NOT_HOLD: "bold red",
    Ruling.ONLY_ON_AWS: "cyan",
    Ruling.LEFT_OUT: "dim",
    Ruling.UNKNOWN: "yellow",
}
_COLUMNS = 80
_OWN_USD_MAX = STAGE_USD_MAX + DEPLOYED_USD_MAX
_OK, _ANSWER_TRIES, _ANSWER_WAIT_S = 200, 20, 3.0  # of a new stage


@click.group(invoke_without_command=True)
@click.option(
    "--url", metavar="URL", help="The API's URL; by default that of --stack, PENSTOCK_URL, or the local service."
)
@click.option("--region", metavar="REGION", help="The AWS region of the stage.")
@click.option("--stack", metavar="STACK", help="The deployed stack; by default PENSTOCK_STACK, else Penstock.")
@click.option("--deploy", "is_own", is_flag=True, help="Deploy a stage for the run, and remove it after.")
@click.option("--profile", type=click.Choice(PROFILES), help=f"Zones of --deploy.  [default: {PROFILES[0]}]")
@click.option("--may-disturb", is_flag=True, help="Load the stage, shut a zone off, and change functions for a moment.")
@click.option("--assume-role", "role_arn", metavar="ARN", help="A role for calls with fewer rights, if you are a role.")
@click.option("--dollars-max", type=click.FloatRange(0.01), default=1.0, show_default=True, help="Spend no more.")
@click.option("--minutes-max", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Take no longer.")
@click.option("--idle", "idle_ms", type=DURATION, default="2m", show_default=True, help="The idle time to try.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The folder of prove.json and prove.md.  [default: .]",
)
@YES
@click.option("--with-ids", is_flag=True, help="Leave account ids, keys, ARNs and hosts in the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, for programs.")
@click.pass_context
def prove(context: click.Context, /, **options: Any) -> None:
    """Show on a deployed stage what no emulator can show, for a dollar and ten minutes at most.

    It makes topics of its own, asks one row after the other, and removes what it made. Rows that load or change the
    stage need --may-disturb or --deploy. The exit code is 1 if something does not hold, and 3 if nothing was shown or
    AWS did not answer all.
    """
    if context.invoked_subcommand is not None:
        return
    if options["is_own"] and (options["url"] or options["stack"]):
        raise click.UsageError("--deploy makes a stage of its own: leave --url and --stack out")
    if options["profile"] and not options["is_own"]:
        raise click.UsageError("--profile goes with --deploy: a stage that is there has its zones")
    if options["is_own"] and options["dollars_max"] <= _OWN_USD_MAX:
        raise click.UsageError(
            f"--dollars-max {options['dollars_max']:g} is too little for --deploy: a stage of its own costs "
            f"${_OWN_USD_MAX:g} before the first row"
        )
    try:
        options["out"].mkdir(parents=True, exist_ok=True)
        with _interrupted_by_term():
            report = _proven(context.obj, options)
    except PenstockError as error:
        raise CommandError(error, as_json=options["as_json"]) from error
    clean = (lambda text: text) if options["with_ids"] else redacted
    (options["out"] / JSON_NAME).write_text(clean(json.dumps(report.to_json(), indent=2)) + "\n")
    (options["out"] / MARKDOWN_NAME).write_text(clean("\n".join(report.markdown())) + "\n")
    if options["as_json"]:
        click.echo(clean(json.dumps(report.to_json())))
    else:
        _show(report, clean)
    if report.exit_code:
        sys.exit(report.exit_code)


@prove.command()
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="PROVE_JSON")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def bill(report: Path, as_json: bool) -> None:
    """Ask Cost Explorer, a day later, what the run of PROVE_JSON cost. It costs $0.01 or $0.02.

    For example: penstock prove bill report.json
    """
    from botocore.exceptions import BotoCoreError, ClientError

    from penstock.jobs.deployed import client

    try:
        found = read_bill(client("ce", "us-east-1"), _document(report), wall_clock_ms())
    except (BotoCoreError, ClientError) as error:
        refused = PenstockError(
            ErrorCode.ACCESS_DENIED, f"Cost Explorer could not be asked: {error}; it needs ce:GetCostAndUsage"
        )
        raise CommandError(refused, as_json=as_json) from error
    except PenstockError as error:
        raise CommandError(error, as_json=as_json) from error
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        show_table(
            f"{found.days}, {'the stage' if found.is_of_stage else 'the whole account'}: ${found.usd:.4f}"
            + (", which AWS may still change" if found.is_estimated else ""),
            ("what", "$"),
            ((each.usage_type, f"{each.usd:.6f}") for each in found.lines),
        )
        click.echo(escaped(f"{found.proof.ruling.value}: {found.proof.fact}"))
    if found.proof.ruling is Ruling.DOES_NOT_HOLD:
        sys.exit(1)


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{path} is no prove.json: it is no JSON object")
    return found


def _proven(given: Any, options: Mapping[str, Any]) -> ProveReport:
    """The report of one run. `given` is a test's transport."""
    began_ms, began_at_ms = monotonic_ms(), wall_clock_ms()
    kinds: dict[str, Any] = {"stack": _destroy}
    path = options["out"] / FILE_NAME
    if options["is_own"]:
        checkout = _checkout_with_npx()
        leftovers = Leftovers(path, "", kinds)
        _undo_earlier(leftovers, options)
        own, place = f"{STAGE_PREFIX}{new_nonce()[:6]}", place_of(options)
        leftovers.note("stack", own, **place)
        try:
            deploy(checkout, {"name": own, **place}, _tell)
            taken = {**options, "stack": stack_of(own), "region": place["region"]}
            stage = stage_of(None, taken, lambda _: leftovers, began_at_ms)
            _wait_for_answer(stage)
        except BaseException:
            _tell_failures(leftovers.undo_all())
            raise
        kinds |= undoings(stage.admin, stage.client, lambda: stage.functions, _destroy)
    else:
        stage = stage_of(given, options, lambda url: Leftovers(path, url, kinds), began_at_ms)
        client = None if stage.account is None else stage.client
        kinds |= undoings(stage.admin, client, lambda: stage.functions, _destroy)
        check_url(stage)
        _undo_earlier(stage.leftovers, options)
    return _run(stage, options, began_ms)


def _checkout_with_npx() -> Path:
    """The checkout to deploy from, before anything is noted: without one, nothing can be deployed or removed."""
    checkout = find_checkout()
    if shutil.which("npx") is None:
        raise PenstockError(ErrorCode.INVALID_CONFIG, "--deploy needs npx: install Node.js")
    return checkout


def _wait_for_answer(stage: ProvenStage) -> None:
    """Wait until a new API has a name and rights, a minute at most. Its rows tell what is missing then."""
    for _ in range(_ANSWER_TRIES):
        try:
            if stage.call("GET", "/v1/zones").response.status == _OK:
                return
        except ConnectionFailedError as error:
            _tell(f"no answer yet: {error.message}")
        stage.wait(_ANSWER_WAIT_S)


def _run(stage: ProvenStage, options: Mapping[str, Any], began_ms: int) -> ProveReport:
    seconds = options["minutes_max"] * 60 - (DESTROY_SECONDS if stage.is_own else 0)
    budget = ProofBudget(
        usd_max=options["dollars_max"],
        seconds_max=seconds,
        usd_before=_OWN_USD_MAX if stage.is_own else STAGE_USD_MAX,
    )
    name = name_of(stage, _tell)
    run = ProveRun(stage, all_rows(options["idle_ms"]), budget, tell=_tell, began_ms=began_ms)
    is_interrupted = False
    try:
        run.run()
    except KeyboardInterrupt:
        is_interrupted = True
        _tell("interrupted: what was changed is put back")
    finally:
        stage.transport.close()
    _tell_failures(run.failures)
    return ProveReport(
        stage=name,
        region="" if stage.configuration is None else stage.configuration.region,
        is_local=stage.is_local,
        is_own=stage.is_own,
        began_at_ms=stage.began_at_ms,
        ended_at_ms=wall_clock_ms(),
        usd_max=run.usd_max,
        rows=run.answered,
        failures=run.failures,
        is_interrupted=is_interrupted,
    )


def _undo_earlier(leftovers: Leftovers, options: Mapping[str, Any]) -> None:
    """Put back what an earlier run left. It asks before it removes a stage, which only the file names.

    Raises INVALID_CONFIG for what cannot be put back, and Abort for a no.
    """
    if not leftovers.entries:
        return
    for each in leftovers.entries:
        if each["kind"] == STACK:
            question = f"Remove the stage {each['name']} of account {each['account']}, {each['region']}?"
            confirm(f"{FILE_NAME} says that an earlier run has deployed it. {question}", yes=options["yes"])
    _tell(f"an earlier run was ended: putting {len(leftovers.entries)} things back …")
    failures = leftovers.undo_all()
    if failures:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"could not be put back: {'; '.join(failures)}")


def _destroy(entry: Mapping[str, Any]) -> None:
    destroy(find_checkout, entry, calls_of(entry["region"]), _tell)


@contextmanager
def _interrupted_by_term() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(text: str) -> None:
    click.echo(escaped(text), err=True)


def _tell_failures(failures: Sequence[str]) -> None:
    for each in failures:
        _tell(f"not put back: {each}; run the same command again")


def _show(report: ProveReport, clean: Callable[[str], str]) -> None:
    table = Table("row", "verdict")
    table.add_column("measured", overflow="fold")
    for each in report.rows:
        verdict = Text(each.proof.ruling.value, style=_STYLES[each.proof.ruling])
        table.add_row(each.row.name, verdict, Text(escaped(clean(each.proof.fact))))
    Console(width=_COLUMNS).print(table)
    click.echo(escaped(report.summary))
