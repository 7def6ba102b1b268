"""The ten figures of docs/performance.md: for each, which cells of which results it quotes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.report.result import Result, Row, Value
from bench.report.tables import cell, to_markdown

FIGURES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _latency(request: str) -> tuple[Cells, ...]:
    return (Cells(result="stack", table="latency", where={"request": request}, columns=("p50_ms", "p99_ms")),)


def _stack(column: str) -> tuple[Cells, ...]:
    return tuple(
        Cells(result="stack", table="throughput", where={"request": f"{verb}, 1000 B"}, columns=(column,))
        for verb in ("produce", "consume")
    )


FIGURES = (
    Figure(
        question="How long does one produce of 100 B take?",
        answer="{} ms p50, {} ms p99",
        cells=_latency("produce, 1 record of 100 B"),
        page="requests",
    ),
    Figure(
        question="How long until a waiting consumer has that record?",
        answer="{} ms p50, {} ms p99",
        cells=_latency("produce to fetch"),
        page="requests",
    ),
    Figure(
        question="How many MB/s pass, as records of 1 KB?",
        answer="{} produced, {} consumed",
        cells=_stack("mb_per_s"),
        page="requests",
    ),
    Figure(
        question="How many storage calls does 1 MB cost?",
        answer="{} to produce, {} to consume",
        cells=_stack("storage_calls_per_mb"),
        page="requests",
    ),
    Figure(
        question="What does AWS charge to produce 1 GiB (modelled)?",
        answer="${} in requests of 1 KiB, ${} of 64 KiB, ${} of 1 MiB",
        cells=(
            Cells(
                result="money",
                table="A produce request of Penstock by transport, $ per GiB",
                where={"profile": "express3", "transport": "http"},
                columns=("1 KiB", "64 KiB", "1 MiB"),
            ),
        ),
        page="costs",
    ),
    Figure(
        question="What does a stage cost that nobody uses (modelled)?",
        answer="${} a month with alarms, ${} without",
        cells=(
            Cells(
                result="bill",
                table="an unused stage, a month",
                where={"stage": "prod"},
                columns=("sum_usd", "without_alarms_usd"),
            ),
        ),
        page="costs",
    ),
    Figure(
        question="How long does a partition pause when its consumer is killed?",
        answer="{} s p50, {} s at most, with sessions of 8 s",
        cells=(Cells(result="group_kills", table="kills", columns=("read_again_p50_s", "read_again_max_s")),),
        page="proofs",
    ),
    Figure(
        question="How long do writes to all zones wait when a zone is lost?",
        answer="{} s",
        cells=(Cells(result="lost_zone", table="loss_and_return", columns=("appends_resume_s",)),),
        page="proofs",
    ),
    Figure(
        question="How long does a new instance of the produce function take to load?",
        answer="{} s of CPU, once Python runs",
        cells=(Cells(result="cold_start", table="functions", where={"function": "produce"}, columns=("cpu_s",)),),
        page="requests",
    ),
    Figure(
        question="How fast does Spark read a topic of 1 KB records?",
        answer="{} MB/s, and {} MB/s for Parquet",
        cells=tuple(
            Cells(result="spark_read", table="reads", where={"values": "1024 B", "way": way}, columns=("mb_per_s",))
            for way in ("data source penstock", "spark.read.parquet")
        ),
        page="spark",
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
