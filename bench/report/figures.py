"""The ten figures of docs/performance.md: for each, which cells of which results it quotes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.report.result import Result, Row, Value
from bench.report.tables import cell, to_markdown

_COLD_PRODUCE = {"function": "produce", "code": "this checkout"}
FIGURES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value of one result."""

    result: str
    table: str
    where: Mapping[str, Value] = field(default_factory=dict)
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A question of a user, and the answer with `{}` for each cell. `page` names a page of docs/performance/."""

    question: str
    answer: str
    cells: tuple[Cell, ...]
    page: str


def _latency(request: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(result="stack", table="latency", where={"request": request}, column=column)
        for column in ("p50_ms", "p99_ms")
    )


def _stack(column: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(result="stack", table="throughput", where={"request": f"{verb}, 1000 B"}, column=column)
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
        answer="${} in requests of 1 KiB, ${} in requests of 1 MiB",
        cells=tuple(
            Cell(
                result="cost_model",
                table="produce_usd_per_million_requests",
                where={"request": size},
                column="usd_per_gib",
            )
            for size in ("1 KiB", "1 MiB")
        ),
        page="costs",
    ),
    Figure(
        question="How long does a partition pause when its consumer is killed?",
        answer="{} s p50, {} s at most, with sessions of 8 s",
        cells=tuple(
            Cell(result="group_kills", table="kills", column=column)
            for column in ("read_again_p50_s", "read_again_max_s")
        ),
        page="groups",
    ),
    Figure(
        question="How fast does Spark read a topic of 1 KB records?",
        answer="{} MB/s, beside {} MB/s for Parquet",
        cells=tuple(
            Cell(result="spark_read", table="reads", where={"values": "1024 B", "way": way}, column="mb_per_s")
            for way in ("data source penstock", "spark.read.parquet")
        ),
        page="spark",
    ),
    Figure(
        question="How many S3 gets does a read of 1 MB need before and after compaction?",
        answer="{} before, {} after, for requests of 10 KB",
        cells=tuple(
            Cell(
                result="compaction",
                table="reads",
                where={"request_bytes": 10_000, "read": when},
                column="gets_per_mb",
            )
            for when in ("before", "after")
        ),
        page="compaction",
    ),
    Figure(
        question="How long do writes to all zones wait when a zone is lost?",
        answer="{} s",
        cells=(Cell(result="lost_zone", table="loss_and_return", column="appends_resume_s"),),
        page="zones",
    ),
    Figure(
        question="How long does a new instance of the produce function take to load?",
        answer="{} s of CPU, once Python runs",
        cells=(Cell(result="cold_start", table="functions", where=_COLD_PRODUCE, column="cpu_s"),),
        page="cold-start",
    ),
)


def to_figures(results: Mapping[str, Result]) -> str:
    """The table in Markdown. Raises LookupError if a result lacks a cell."""
    rows: list[Row] = [
        {
            "you_ask": figure.question,
            "figure": figure.answer.format(*(cell(_value(results, each)) for each in figure.cells)),
            "measured": ", ".join(dict.fromkeys(_origin(results[each.result]) for each in figure.cells)),
            "page": f"[{figure.page}](performance/{figure.page}.md)",
        }
        for figure in FIGURES
    ]
    return to_markdown(rows)


def _origin(result: Result) -> str:
    return f"{result.measured_at[:10]}, {result.commit}"


def _value(results: Mapping[str, Result], where: Cell) -> Value:
    if where.result not in results:
        raise LookupError(f"a figure of docs/performance.md needs bench/results/{where.result}.json")
    return results[where.result].find(where.table, where.where, where.column)
