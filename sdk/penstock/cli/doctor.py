"""`penstock doctor`: check the service, the account and a round trip, and say what to mend."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.jobs import DEFAULT_STACK
from penstock.cli.service import TOKEN_FILE, CommandError
from penstock.cli.tables import FILE_COLUMNS
from penstock.configuration import Configuration, caller_configuration
from penstock.doctor.account_checks import Account
from penstock.doctor.examination import examine
from penstock.doctor.finding import Report, Verdict, redacted
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.http.transport import HttpTransport
from penstock.local_files import is_loopback
from penstock_core.errors import PenstockError
from penstock_core.text import escaped

_STYLES = {Verdict.OK: "green", Verdict.MEND: "bold red", Verdict.UNKNOWN: "yellow", Verdict.SKIPPED: "dim"}


@click.command()
@click.option("--url", metavar="URL", help="The API's URL; by default PENSTOCK_URL, else the local service.")
@click.option("--region", metavar="REGION", help="The AWS region to sign for, if the URL does not tell it.")
@TOKEN_FILE
@click.option("--stack", metavar="STACK", help="The deployed stack; by default PENSTOCK_STACK, else Penstock.")
@click.option("--json", "form", flag_value="json", help="Print JSON, for programs.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown, to paste into an issue.")
@click.option("--with-ids", is_flag=True, help="Leave account ids, keys, ARNs and hosts in the report.")
def doctor(
    url: str | None,
    region: str | None,
    token_file: str | None,
    stack: str | None,
    form: str | None,
    with_ids: bool,
) -> None:
    """Check the service, the account and a round trip, and say what to mend.

    It writes 30 records to a topic of its own, reads them back, and deletes the topic. It costs less than a cent. The
    exit code is 1 if there is something to mend. With a token, it leaves out what needs AWS keys.

    For example: penstock doctor --markdown
    """
    given = click.get_current_context().obj  # a test's transport
    try:
        if given is not None:
            report = examine(RecordingTransport(given), None, AwsCalls())
        else:
            report = _examine(caller_configuration(url, region, token_file), stack)
    except PenstockError as error:
        raise CommandError(error, as_json=form == "json") from error
    clean = _unchanged if with_ids else redacted
    if form == "json":
        click.echo(clean(json.dumps(report.to_json())))
    elif form == "markdown":
        click.echo("\n".join(_markdown(report, clean)))
    else:
        _show(report, clean)
    if not report.is_well:
        sys.exit(1)


def _examine(configuration: Configuration, stack: str | None) -> Report:
    has_token = configuration.tokens is not None
    if configuration.tokens is not None:
        configuration.tokens.current()  # a file that is not there is no finding about the service
    transport, calls = RecordingTransport(HttpTransport(configuration)), AwsCalls()
    account = None
    if not (has_token or is_loopback(configuration.url)):
        name = stack or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
        account = Account(client=_clients(configuration.region, calls), stack=name, api_url=configuration.url)
    try:
        return examine(transport, account, calls, has_token=has_token)
    finally:
        transport.close()


def _clients(region: str, calls: AwsCalls) -> Callable[[str], Any]:
    @cache
    def make(service: str) -> Any:
        from penstock.jobs.deployed import client  # botocore takes 0.1 s, which other commands need not wait for

        made = client(service, region)
        calls.watch(made)
        return made

    return make


def _unchanged(text: str) -> str:
    return text


def _rows(report: Report, clean: Callable[[str], str]) -> Iterator[tuple[Verdict, str, str, str]]:
    for finding in report.findings:
        yield finding.verdict, finding.check, clean(finding.fact), clean(finding.remedy)


def _timings(report: Report) -> Iterator[str]:
    for timing in report.timings:
        yield f"{timing.request}: p50 {timing.p50_ms:g} ms, p99 {timing.p99_ms:g} ms, of {timing.count}"


def _summary(report: Report) -> Iterator[str]:
    cost = report.cost
    yield f"cost: ${cost.usd_max:.4f} at most, for {cost.requests} requests and {cost.aws_calls} calls to AWS"
    wrong = sum(finding.verdict is Verdict.MEND for finding in report.findings)
    unknown = sum(finding.verdict is Verdict.UNKNOWN for finding in report.findings)
    missing = f"; {unknown} could not be checked" if unknown else ""
    yield f"{'all well' if report.is_well else f'{wrong} to mend'}{missing}"


def _show(report: Report, clean: Callable[[str], str]) -> None:
    table = Table("check", "verdict", "what was found", "what to do")
    for verdict, check, fact, remedy in _rows(report, clean):
        style = _STYLES[verdict]
        table.add_row(check, Text(verdict.value, style=style), Text(escaped(fact)), Text(escaped(remedy)))
    console = Console(width=None if sys.stdout.isatty() else FILE_COLUMNS)
    console.print(table)
    for line in (*_timings(report), *_summary(report)):
        click.echo(escaped(line))


def _markdown(report: Report, clean: Callable[[str], str]) -> Iterator[str]:
    yield "| check | verdict | what was found | what to do |"
    yield "| --- | --- | --- | --- |"
    for verdict, check, fact, remedy in _rows(report, clean):
        yield "| " + " | ".join(_cell(text) for text in (check, verdict.value, fact, remedy)) + " |"
    yield ""
    for line in (*_timings(report), *_summary(report)):
        yield f"- {line}"


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|").replace("\n", " ")
