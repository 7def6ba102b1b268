"""The ten figures of docs/performance.md: for each, which cells of which results it quotes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.report.result import Result, Row, Value
from bench.report.tables import cell, to_markdown

FIGURES_MAX = 10


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of one row of one result."""

    result: str
    table: str
    columns: tuple[str, ...]
    where: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A question of a user, and the answer with `{}` for each cell. `page` names a page of docs/performance/."""

    question: str
    answer: str
    cells: tuple[Cells, ...]
    page: str


_WRITE, _READ = ({"request": each} for each in ("produce, 1 record of 100 B", "produce to fetch"))
_PRODUCE, _CONSUME = ({"request": f"{verb}, 1000 B"} for verb in ("produce", "consume"))
_GIB = "A produce request of Penstock by transport, $ per GiB"
_SPARK, _PARQUET = ({"values": "1024 B", "way": way} for way in ("data source penstock", "spark.read.parquet"))


def _figure(question: str, answer: str, page: str, *cells: Cells) -> Figure:
    return Figure(question=question, answer=answer, cells=cells, page=page)


FIGURES = (
    _figure(
        "How long does one produce of 100 B take?",
        "{} ms p50, {} ms p99",
        "requests",
        Cells("stack", "latency", ("p50_ms", "p99_ms"), _WRITE),
    ),
    _figure(
        "How long until a waiting consumer has that record?",
        "{} ms p50, {} ms p99",
        "requests",
        Cells("stack", "latency", ("p50_ms", "p99_ms"), _READ),
    ),
    _figure(
        "How many MB/s pass, as records of 1 KB?",
        "{} produced, {} consumed",
        "requests",
        Cells("stack", "throughput", ("mb_per_s",), _PRODUCE),
        Cells("stack", "throughput", ("mb_per_s",), _CONSUME),
    ),
    _figure(
        "How many storage calls does 1 MB cost?",
        "{} to produce, {} to consume",
        "requests",
        Cells("stack", "throughput", ("storage_calls_per_mb",), _PRODUCE),
        Cells("stack", "throughput", ("storage_calls_per_mb",), _CONSUME),
    ),
    _figure(
        "What does AWS charge to produce 1 GiB (modelled)?",
        "${} in requests of 1 KiB, ${} of 64 KiB, ${} of 1 MiB",
        "costs",
        Cells("money", _GIB, ("1 KiB", "64 KiB", "1 MiB"), {"profile": "express3", "transport": "lambda"}),
    ),
    _figure(
        "What does a stage cost that nobody uses (modelled)?",
        "${} a month with alarms, ${} without",
        "costs",
        Cells("bill", "an unused stage, a month", ("sum_usd", "without_alarms_usd"), {"stage": "prod"}),
    ),
    _figure(
        "How long does a partition pause when its consumer is killed?",
        "{} s p50, {} s at most, with sessions of 8 s",
        "proofs",
        Cells("group_kills", "kills", ("read_again_p50_s", "read_again_max_s")),
    ),
    _figure(
        "How long do writes to all zones wait when a zone is lost?",
        "{} s",
        "proofs",
        Cells("lost_zone", "loss_and_return", ("appends_resume_s",)),
    ),
    _figure(
        "How long does a new instance of the produce function take to load?",
        "{} s of CPU, once Python runs",
        "requests",
        Cells("cold_start", "functions", ("cpu_s",), {"function": "produce"}),
    ),
    _figure(
        "How fast does Spark read a topic of 1 KB records?",
        "{} MB/s, and {} MB/s for Parquet",
        "spark",
        Cells("spark_read", "reads", ("mb_per_s",), _SPARK),
        Cells("spark_read", "reads", ("mb_per_s",), _PARQUET),
    ),
)


def to_figures(results: Mapping[str, Result]) -> str:
    """The table in Markdown. Raises LookupError if a result lacks a cell."""
    rows: list[Row] = [
        {
            "you_ask": figure.question,
            "figure": figure.answer.format(*(cell(value) for each in figure.cells for value in _values(results, each))),
            "measured": ", ".join(dict.fromkeys(_origin(results[each.result]) for each in figure.cells)),
            "page": f"[{figure.page}](performance/{figure.page}.md)",
        }
        for figure in FIGURES
    ]
    return to_markdown(rows)


def _origin(result: Result) -> str:
    return f"{result.measured_at[:10]}, {result.commit}"


def _values(results: Mapping[str, Result], of: Cells) -> list[Value]:
    if of.result not in results:
        raise LookupError(f"a figure of docs/performance.md needs bench/results/{of.result}.json")
    return [results[of.result].find(of.table, of.where, column) for column in of.columns]
