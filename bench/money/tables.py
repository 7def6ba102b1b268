"""The tables of docs/performance/money.md: counted calls of Penstock, billing rules of others, and one price table."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.report.recording import Report
from bench.report.result import Row, Value
from penstock import prices
from penstock.cost.counted import PROFILES, counted, counted_at, function_ms
from penstock.cost.estimate import Estimate, estimate, priced
from penstock.cost.others import NAMES, estimates
from penstock.cost.workload import SECONDS_PER_MONTH, Workload
from penstock.http.named_transport import TRANSPORT_NAMES
from penstock.prices import Price
from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB

Measure = Callable[[Estimate, Workload], float]

MILLION = 1_000_000
GIB = 1024 * MIB
REQUESTS = {
    "1 KiB": KIB,
    "4 KiB": 4 * KIB,
    "16 KiB": 16 * KIB,
    "64 KiB": 64 * KIB,
    "256 KiB": 256 * KIB,
    "1 MiB": MIB,
    "4 MiB": BATCH_BYTES_MAX,  # of records, in a request of 4 MiB
}
TYPICAL = Workload(records_per_s=1_024, record_bytes=KIB, retention_days=1, request_bytes=64 * KIB)
"""1 MiB a second of records of 1 KiB, in requests of 64 KiB, read once and kept for a day."""
RATES = {
    "idle": 0,
    "1 KiB/s": 1,
    "10 KiB/s": 10,
    "100 KiB/s": 100,
    "1 MiB/s": KIB,
    "10 MiB/s": 10 * KIB,
    "100 MiB/s": 100 * KIB,
}
FAN_OUTS = (0, 1, 2, 5, 10)
_OURS = ("API_REQUESTS", "APPSYNC_", "LAMBDA_", "WRITE_UNITS", "READ_UNITS", "TABLE_GB", "S3_", "EXPRESS_")
_PRICES = (*_OURS, "SQS_", "KINESIS_", "MSK_", "WARPSTREAM_", "AGENT_")
DAYS = (1, 7, 14, 30, 90)


def show_tables(report: Report) -> None:
    """Adds all tables to the report."""
    each_ms, mib_ms = function_ms()
    report.conditions += [
        f"List prices of {prices.REGION}, {prices.DATE}, without free tiers, discounts, traffic and clients.",
        f"Penstock's calls were counted on {counted_at()} by `python -m bench.money capture`; a function's time is "
        f"assumed: {each_ms:g} ms, and {mib_ms:g} ms for each MiB.",
        "The other systems are computed from their billing rules. A price marked unverified was not seen on its page.",
    ]
    report.show("A produce request of Penstock", list(_produce_rows()))
    report.show("A produce request of Penstock by transport, $ per GiB", list(_transport_rows()))
    report.show("A fetch of Penstock that finds the records of one request", list(_fetch_rows()))
    by_request = {name: replace(TYPICAL, request_bytes=size) for name, size in REQUESTS.items()}
    report.show("All systems by request, $ per GiB", _by(by_request, _per_gib))
    report.show("All systems by request, $ per million records of 1 KiB", _by(by_request, _per_million))
    by_record = {name: _single(size) for name, size in REQUESTS.items()}
    report.show("All systems by record, one in each request, $ per GiB", _by(by_record, _per_gib))
    by_consumers = {str(count): replace(TYPICAL, consumers=count) for count in FAN_OUTS}
    report.show("All systems by consumers, $ per GiB", _by(by_consumers, _per_gib))
    by_rate = {name: replace(TYPICAL, records_per_s=rate) for name, rate in RATES.items()}
    report.show("All systems by rate, $ a month", _by(by_rate, _month))
    by_days = {str(days): replace(TYPICAL, retention_days=days) for days in DAYS}
    report.show("All systems by days of retention, $ per GiB", _by(by_days, _per_gib))
    report.show("The prices of the comparison", list(_price_rows()))


def _single(size: int) -> Workload:
    return replace(TYPICAL, record_bytes=size, request_bytes=size, records_per_s=MIB / size)


def _produce_rows() -> Iterator[Row]:
    for profile in PROFILES:
        for name, size in REQUESTS.items():
            counts = counted(profile).append(size)
            lines = priced("produce", counts)
            usd = sum(line.usd for line in lines) * MILLION
            top = max(lines, key=lambda line: line.usd)
            yield {
                "profile": profile,
                "request": name,
                "puts": round(counts.get("EXPRESS_PUTS", 0) + counts.get("S3_PUTS", 0), 3),
                "write_units": round(counts["WRITE_UNITS"], 3),
                "usd_per_million": _round(usd),
                "usd_per_gib": _round(usd / MILLION * GIB / size),
                "dearest": top.what,
                "its_share_percent": round(100 * top.usd * MILLION / usd),
            }


def _transport_rows() -> Iterator[Row]:
    """Nothing but the produce request itself, by the transport that carries it."""
    for profile in PROFILES:
        for transport in TRANSPORT_NAMES:
            usd = {
                name: sum(line.usd for line in priced("produce", counted(profile, transport).append(size))) * GIB / size
                for name, size in REQUESTS.items()
            }
            yield {"profile": profile, "transport": transport, **{name: _round(each) for name, each in usd.items()}}


def _fetch_rows() -> Iterator[Row]:
    for profile in PROFILES:
        for name, size in REQUESTS.items():
            usd = sum(line.usd for line in priced("consume", counted(profile).fetch(size))) * MILLION
            yield {
                "profile": profile,
                "answer": name,
                "usd_per_million": _round(usd),
                "usd_per_gib": _round(usd / MILLION * GIB / size),
            }


def _by(workloads: dict[str, Workload], value: Measure) -> list[Row]:
    """A row for each system, and a column for each workload."""
    columns = {name: _months(workload) for name, workload in workloads.items()}
    systems = [*(f"Penstock {each}" for each in PROFILES), *NAMES]
    return [
        {"system": system, **{name: _cell(months[at], workloads[name], value) for name, months in columns.items()}}
        for at, system in enumerate(systems)
    ]


def _months(workload: Workload) -> list[Estimate | str]:
    return [*(estimate(each, workload) for each in PROFILES), *estimates(workload)]


def _cell(month: Estimate | str, workload: Workload, value: Measure) -> Value:
    if isinstance(month, str):
        return "no"
    return _round(value(month, workload))


def _per_gib(month: Estimate, workload: Workload) -> float:
    return month.usd / (workload.bytes_per_s * SECONDS_PER_MONTH) * GIB


def _per_million(month: Estimate, workload: Workload) -> float:
    return month.usd / (workload.records_per_s * SECONDS_PER_MONTH) * MILLION


def _month(month: Estimate, _: Workload) -> float:
    return month.usd


def _round(usd: float) -> float:
    return round(usd, 2) if usd >= 10 else float(f"{usd:.3g}")


def _price_rows() -> Iterator[Row]:
    for name, price in vars(prices).items():
        if isinstance(price, Price) and name.startswith(_PRICES):
            yield {
                "price": name.lower().replace("_", " "),
                "usd": f"{price.usd:g} for {price.per:,}" if price.per > 1 else f"{price.usd:g}",
                "unit": price.unit,
                "source": price.source,
                "date": prices.DATE,
                "seen": "yes" if price.is_verified else "unverified",
            }
