"""`penstock cost`: what a workload costs in a month, or what a day's real use has cost."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from penstock.cli.options.settings import SIZE
from penstock.cli.options.times import DURATION, TIME, typed_time_ms
from penstock.cli.service import Service, service_command
from penstock.cli.tables import show_table
from penstock.http.named_transport import AUTO, CARRIER_NAMES, LAMBDA, chosen_name
from penstock.prices import DATE, REGION

if TYPE_CHECKING:
    from penstock.cost.estimate import Estimate
    from penstock.cost.usage import DayUsage
    from penstock.cost.workload import Workload

_PROFILES = ("express3", "express2", "standard1")
_GIB = 1024**3
_DAY_MS = 86_400_000
_LINES = 12  # of a bill that a table shows
_COLUMNS = 80
_MILLION = 1_000_000


@click.command()
@click.option("--rate", type=float, help="Records a second, of all topics.")
@click.option("--size", type=SIZE, default="1KiB", show_default=True, help="Bytes of a record, after compression.")
@click.option("--topics", type=int, default=1, show_default=True, help="Topics that share the rate.")
@click.option("--partitions", type=int, default=6, show_default=True, help="Partitions of each topic.")
@click.option("--groups", type=int, default=1, show_default=True, help="Consumer groups of each topic.")
@click.option("--members", type=int, help="Members of all groups together.  [default: one in each]")
@click.option("--new-groups", type=int, default=0, show_default=True, help="Groups that each month makes anew.")
@click.option("--share-workers", type=int, default=0, show_default=True, help="Workers of all share groups together.")
@click.option("--subscriptions", type=int, default=0, show_default=True, help="Subscriptions of each topic.")
@click.option("--mirrors", type=int, default=0, show_default=True, help="Other stages that mirror each topic.")
@click.option("--mirrors-in-region", is_flag=True, help="They are in this region: their bytes cost no transfer.")
@click.option("--consumers", type=int, hidden=True)
@click.option("--hours", type=float, default=24, show_default=True, help="Hours of a day in which records come.")
@click.option("--worker-hours", type=float, default=24, show_default=True, help="Hours of a day in which readers run.")
@click.option("--days", type=float, default=7, show_default=True, help="Days of a week in which records come.")
@click.option("--retention", type=DURATION, default="14d", show_default=True, help="How long records are kept.")
@click.option("--profile", type=click.Choice(_PROFILES), default="express3", show_default=True, help="Storage profile.")
@click.option(
    "--inline-bytes-max",
    type=click.Choice(("0", "auto")),
    default="auto",
    show_default=True,
    help="The stage's setting: 0 puts small requests into zones, too.",
)
@click.option("--keys", "has_keys", is_flag=True, help="Records have keys, so a request goes to many partitions.")
@click.option("--producers", type=int, default=1, show_default=True, help="Producers that share the rate.")
@click.option("--linger", type=DURATION, default="5ms", show_default=True, help="linger_ms of the producers.")
@click.option(
    "--fetch-interval", type=DURATION, default="200ms", show_default=True, help="fetch_interval_ms of the readers."
)
@click.option("--max-latency", type=DURATION, help="Find linger and fetch interval for this delay of a record at most.")
@click.option("--request", type=SIZE, help="Bytes of a produce request, instead of --linger and --producers.")
@click.option("--compacted", is_flag=True, help="The topics keep the latest record of each key.")
@click.option("--kms-key", is_flag=True, help="The stage has a KMS key of yours.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the month by rate into this .png or .svg."
)
@click.option("--from-usage", is_flag=True, help="Price a day's real counts, by topic, instead of a rate.")
@click.option("--day", type=TIME, help="The day of --from-usage, in UTC.  [default: yesterday]")
@click.option("--stage", default="penstock", show_default=True, help="The stage whose metrics --from-usage reads.")
@service_command
def cost(service: Service, **options: Any) -> None:
    """Estimate the month of a workload, or price yesterday's use, from counted calls and list prices.

    The estimate names the levers, the largest first, and is compared with Kinesis, SQS, MSK and WarpStream. It counts
    calls by the transport of --transport or PENSTOCK_TRANSPORT. By default, `auto`, your clients run in the stage's
    account. For clients elsewhere, or with tokens, give --transport http.

    For example: penstock cost --rate 50 --size 1KiB --groups 3
    """
    if (options["rate"] is None) != options["from_usage"]:
        raise click.UsageError("give --rate for an estimate, or --from-usage for a day's real counts")
    workload = _workload(options)
    if options["from_usage"]:
        day_ms = typed_time_ms("yesterday") if options["day"] is None else options["day"]
        _show_day(service, options["profile"], workload, day_ms // _DAY_MS * _DAY_MS, options["stage"])
        return
    if options["max_latency"] is not None:
        workload = _within(service, options, workload)
    if options["plot"] is not None:
        from penstock.cost.plot import write_plot

        write_plot(options["plot"], workload)
    _show_month(service, options["profile"], workload)


def _workload(options: Mapping[str, Any]) -> "Workload":
    from penstock.cost.workload import Workload  # it is needed here only

    groups = options["groups"]
    if options["consumers"] is not None:
        if _is_given("groups"):
            raise click.UsageError("--consumers is the old name of --groups: leave it out")
        groups = options["consumers"]
        click.echo(
            "--consumers is --groups now: groups of one member, each of which reads all records. --members, "
            "--share-workers and --subscriptions price other readers. The next release does not know --consumers.",
            err=True,
        )
    return Workload(
        records_per_s=options["rate"] or 0.0,
        record_bytes=options["size"],
        topics=options["topics"],
        partitions=options["partitions"],
        groups=groups,
        members=options["members"],
        new_groups=options["new_groups"],
        share_workers=options["share_workers"],
        subscriptions=options["subscriptions"],
        mirrors=options["mirrors"],
        mirrors_in_region=options["mirrors_in_region"],
        hours=options["hours"],
        worker_hours=options["worker_hours"],
        days=options["days"],
        retention_days=options["retention"] / _DAY_MS,
        producers=options["producers"],
        linger_ms=options["linger"],
        fetch_interval_ms=options["fetch_interval"],
        request_bytes=options["request"],
        is_compacted=options["compacted"],
        has_keys=options["has_keys"],
        has_items=options["inline_bytes_max"] == "auto",
        kms_key=options["kms_key"],
    )


def _within(service: Service, options: Mapping[str, Any], workload: "Workload") -> "Workload":
    from penstock.cost.levers import within_latency

    for name in ("linger", "fetch_interval"):
        if _is_given(name):
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"--max-latency finds linger and fetch interval itself: leave {option} out")
    transport = chosen_name(service.transport_name, None)
    return within_latency(options["profile"], workload, options["max_latency"], transport)


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _show_month(service: Service, profile: str, workload: "Workload") -> None:
    from penstock.cost.estimate import estimate
    from penstock.cost.levers import levers
    from penstock.cost.others import NAMES, estimates

    transport = chosen_name(service.transport_name, None)
    month = estimate(profile, workload, transport)
    same = LAMBDA if transport == AUTO else transport  # to the cent
    saving = levers(profile, workload, transport)
    beside = [month, *(estimate(each, workload, transport) for each in _PROFILES if each != profile)]
    beside += [estimate(profile, workload, each) for each in CARRIER_NAMES if each != same]
    rows = [_row(each, workload) for each in beside]
    rows += [
        _row(each, workload) if not isinstance(each, str) else (name, None, None, None, each)
        for name, each in zip(NAMES, estimates(workload), strict=True)
    ]
    rows.sort(key=lambda row: (row[1] is None, row[1] or 0.0))
    if service.as_json:
        service.say(_document(month, workload, saving, rows), "")
        return
    for each in _heading(month.system.removeprefix("Penstock "), workload, month.usd):
        click.echo(textwrap.fill(each, _COLUMNS))
    if saving:
        show_table(
            "levers, the largest first", ("change", "saves $"), ((each.change, _usd(each.saves_usd)) for each in saving)
        )
    show_table(
        "the bill, the dearest first",
        ("part", "what", "quantity", "$"),
        ((each.part, each.what, f"{each.quantity:,.0f}", _usd(each.usd)) for each in month.lines[:_LINES]),
    )
    show_table(
        "next to others, a month",
        ("system", "$", "$/GiB", "note"),
        (
            (row[0], _usd(row[1]), None if row[2] is None else _usd(row[2]), row[4])
            for row in rows
            if row[1] is not None
        ),
    )
    for system, usd, _, _, why in rows:
        if usd is None:
            click.echo(f"{system} takes no such workload: {why}.")
    for remark in _remarks():
        click.echo(textwrap.fill(remark, _COLUMNS))


def _heading(profile: str, workload: "Workload", usd: float) -> Iterator[str]:
    yield f"About ${_usd(usd)} a month on {profile}, in {REGION} by list prices of {DATE}."
    yield (
        f"{workload.requests_per_s:,.1f} produce requests a second, of {workload.bytes_per_request:,.0f} bytes, "
        f"for {workload.busy_s / 3_600:,.0f} hours a month."
    )
    yield f"linger_ms={workload.linger_ms:g}, fetch_interval_ms={workload.fetch_interval_ms:g}."


def _remarks() -> list[str]:
    from penstock.cost.counted import counted_at, function_ms
    from penstock.cost.readers import MIRROR_MS, TARGET_MS

    each_ms, mib_ms = function_ms()
    return [
        f"Penstock's calls are counted ({counted_at()}). The time of a function is assumed: {each_ms:g} ms, and "
        f"{mib_ms:g} ms for each MiB. The target of a subscription answers in {TARGET_MS:g} ms, and a mirror in "
        f"{MIRROR_MS:g} ms.",
        "Other systems are computed from their billing rules; nobody has seen the prices that are unverified. Left "
        "out: free tiers, discounts, traffic, your clients.",
    ]


def _row(month: "Estimate", workload: "Workload") -> tuple[str, float | None, float | None, float | None, str]:
    records = workload.records_per_month
    if not records:
        return month.system, month.usd, None, None, month.note
    size = records * workload.record_bytes
    return month.system, month.usd, month.usd / size * _GIB, month.usd / records * 1_000_000, month.note


def _document(month: "Estimate", workload: "Workload", saving: Any, rows: Any) -> dict[str, Any]:
    names = ("system", "usd_per_month", "usd_per_gib", "usd_per_million_records", "note")
    return {
        "system": month.system,
        "usd_per_month": month.usd,
        "workload": asdict(workload)
        | {"requests_per_s": workload.requests_per_s, "bytes_per_request": workload.bytes_per_request},
        "levers": [asdict(each) for each in saving],
        "lines": [asdict(each) for each in month.lines],
        "systems": [dict(zip(names, row, strict=True)) for row in rows],
        "prices": {"region": REGION, "date": DATE},
        "remarks": _remarks(),
    }


def _show_day(service: Service, profile: str, assumed: "Workload", start_ms: int, stage: str) -> None:
    from penstock.cost.usage import price_day

    usage = _usage(service, start_ms, stage)
    found = price_day(profile, usage, replace(assumed, records_per_s=0.0))
    day = datetime.fromtimestamp(start_ms / 1_000, UTC).date().isoformat()
    document = {
        "day": day,
        "source": usage.source,
        "profile": profile,
        "usd": sum(each.usd for each in found),
        "topics": [
            asdict(each.day) | {"usd": each.usd, "lines": [asdict(line) for line in each.lines]} for each in found
        ],
        "missing": list(usage.missing),
    }
    service.show(
        document,
        title=f"{day}, counted by {usage.source}, at list prices of {DATE}",
        columns=("topic", "records in", "bytes in", "records out", "bytes out", "dearest", "$"),
        rows=(
            (
                each.day.topic,
                *(
                    None if count is None else f"{count:,.0f}"
                    for count in (
                        each.day.records_received,
                        each.day.bytes_received,
                        each.day.records_sent,
                        each.day.bytes_sent,
                    )
                ),
                each.lines[0].what if each.lines else None,
                _usd(each.usd),
            )
            for each in found
        ),
    )
    if not service.as_json:
        for each in usage.missing:
            click.echo(f"not counted: {each}")


def _usage(service: Service, start_ms: int, stage: str) -> "DayUsage":
    """The stage's metrics, or the offsets where there are none."""
    from penstock.admin.admin import Admin
    from penstock.configuration import find_configuration
    from penstock.cost.usage import usage_from_metrics, usage_from_offsets
    from penstock.local_files import is_loopback

    context = click.get_current_context()
    if context.obj is None:  # else it is a test's transport
        configuration = find_configuration(context.params.get("url"), context.params.get("region"))
        if not is_loopback(configuration.url):
            from penstock.jobs.deployed import client

            counted = usage_from_metrics(client("cloudwatch", configuration.region), stage, start_ms / 1_000)
            if counted is not None:
                return counted
    return usage_from_offsets(Admin(transport=service.transport), start_ms)


def _usd(usd: float) -> str:
    """Dollars with cents, small ones with three digits that count, and millions without cents."""
    if usd >= _MILLION:
        return f"{usd:,.0f}"
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3g}"
