"""All questions that a bench answers: the command of each, the results that it writes, and the page that shows them.

A test compares the list with the sources: each result that a bench can write belongs to one question.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One command. `results` are the files that it can write in bench/results/. `needs` is what it cannot do without.

    `quick` tells that the command has the option `--quick`.
    """

    asks: str
    command: str
    results: tuple[str, ...]
    page: str
    needs: str = ""
    quick: bool = False

    @property
    def module(self) -> str:
        """The module that `python -m` runs."""
        return self.command.split()[0]


STACK, SPARK = "a local stack", "Java"

PAGES = {
    "requests": (
        "Produce and fetch",
        "latency, throughput, storage calls and CPU of requests, and how clients wait",
    ),
    "costs": ("Costs", "dollars by operation, of an idle stage, compared with Kinesis, SQS, MSK and WarpStream"),
    "rivals": ("Penstock, Kinesis and SQS", "how many records a second all three carry on one emulator"),
    "scale": ("Scale by simulation", "what limits Penstock on AWS from 1 MB/s to 1 GB/s, by a model"),
    "proofs": ("Kills, restarts and slow records", "what is lost or doubled, and who waits"),
    "spark": ("Spark", "how fast Spark reads a topic, what a micro-batch takes, and the rates of the archive"),
}
"""The generated pages of docs/performance/: the title of each, and what you know after it."""

QUESTIONS = (
    Question(
        asks="What do produce and fetch take: time, storage calls, CPU of the functions?",
        command="bench.stack", results=("stack",), page="requests", needs=STACK,
    ),
    Question(
        asks="What does a waiting consumer cost, and how soon does it have a record?",
        command="bench.waiting", results=("waiting",), page="requests", needs=STACK,
    ),
    Question(
        asks="How soon does a subscription call its target?",
        command="bench.push_latency", results=("push_latency",), page="requests", needs=STACK,
    ),
    Question(
        asks="How long does a new function instance load?",
        command="bench.cold_start", results=("cold_start",), page="requests",
    ),
    Question(
        asks="What CPU do warm produce and fetch take, apart from their calls to storage?",
        command="bench.handler_cpu", results=("handler_cpu",), page="requests",
    ),
    Question(
        asks="How many records does a CPU second of the SDK's clients carry?",
        command="bench.clients.cpu", results=("client_cpu",), page="requests", quick=True,
    ),
    Question(
        asks="What does each call cost on AWS, and a stage at rest?",
        command="bench.bill", results=("bill",), page="costs",
    ),
    Question(
        asks="What does a small append cost as an item of DynamoDB, to the end of its bytes?",
        command="bench.inline_appends", results=("inline_appends",), page="costs",
    ),
    Question(
        asks="What does Penstock cost compared with Kinesis, SQS, MSK and WarpStream?",
        command="bench.money", results=("money",), page="costs",
    ),
    Question(
        asks="How do Penstock, Kinesis and SQS compare on one emulator?",
        command="bench.rivals", results=("rivals",), page="rivals", needs=STACK, quick=True,
    ),
    Question(
        asks="What limits Penstock on AWS from 1 MB/s to 1 GB/s, by simulation?",
        command="bench.scale", results=("scale",), page="scale",
    ),
    Question(
        asks="What is lost or doubled when consumers are killed?",
        command="bench.group_kills", results=("group_kills",), page="proofs", needs=STACK,
    ),
    Question(
        asks="How long do partitions pause when members restart in turn?",
        command="bench.rolling_restart", results=("rolling_restart",), page="proofs", needs=STACK,
    ),
    Question(
        asks="Does a ledger balance while its workers die?",
        command="bench.ledger", results=("ledger",), page="proofs", needs=STACK,
    ),
    Question(
        asks="What does a work queue keep while workers die, and who waits for a slow record?",
        command="bench.share_groups", results=("share_kills", "share_slow_record"), page="proofs", needs=STACK,
    ),
    Question(
        asks="Does a streaming query keep each record once while it is killed?",
        command="bench.spark.stream_kills", results=("stream_kills",), page="proofs", needs=SPARK,
    ),
    Question(
        asks="How long do writes wait when a zone is lost, and when is it in sync again?",
        command="pytest tests/end_to_end/jobs/test_zones.py", results=("lost_zone",), page="proofs",
    ),
    Question(
        asks="How fast does Spark read a topic?",
        command="bench.spark.spark_read", results=("spark_read",), page="spark", needs=SPARK,
    ),
    Question(
        asks="How fast are micro-batches of Spark?",
        command="bench.spark.spark_stream", results=("spark_stream",), page="spark", needs=SPARK,
    ),
    Question(
        asks="How fast does the archive job write, and replay?",
        command="bench.spark.archive", results=("archive",), page="spark", needs=SPARK,
    ),
    Question(
        asks="Does a real file come back from a new stack, byte for byte?",
        command="bench.demo", results=("demo",), page="requests", needs=STACK,
    ),
)  # fmt: skip
