"""All questions that a bench answers: the command of each, the results that it writes, and the page that shows them.

A test compares the list with the sources: each result that a bench can write belongs to one question.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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
    "rivals": ("Penstock and Kinesis", "how many records a second both carry on one emulator"),
    "scale": ("Scale by simulation", "what limits Penstock on AWS from 1 MB/s to 1 GB/s, by a model"),
    "proofs": ("Kills, restarts and slow records", "what is lost or doubled, and who waits"),
    "spark": ("Spark", "how fast Spark reads a topic, what a micro-batch takes, and the rates of the archive"),
}
"""The generated pages of docs/performance/: the title of each, and what you know after it."""

QUESTIONS = (
    Question("What do produce and fetch take: time, storage calls, CPU of the functions?",
             "bench.stack", ("stack",), "requests", needs=STACK),
    Question("What does a waiting consumer cost, and how soon does it have a record?",
             "bench.waiting", ("waiting",), "requests", needs=STACK),
    Question("What do ten readers of the same records in one process cost, compared with one?",
             "bench.shared_readers", ("shared_readers",), "costs"),
    Question("How soon does a subscription call its target?",
             "bench.push_latency", ("push_latency",), "requests", needs=STACK),
    Question("How long does a new function instance load?",
             "bench.cold_start", ("cold_start",), "requests"),
    Question("What CPU do warm produce and fetch take, apart from their calls to storage?",
             "bench.handler_cpu", ("handler_cpu",), "requests"),
    Question("Which memory is worth its price for each hot function?",
             "bench.memory", ("memory",), "costs"),
    Question("How many records does a CPU second of the SDK's clients carry?",
             "bench.clients.cpu", ("client_cpu",), "requests", quick=True),
    Question("What does each call cost on AWS, and a stage at rest?",
             "bench.bill", ("bill",), "costs"),
    Question("What does a small append cost as an item of DynamoDB, to the end of its bytes?",
             "bench.inline_appends", ("inline_appends",), "costs"),
    Question("What does Penstock cost compared with Kinesis, SQS, MSK and WarpStream?",
             "bench.money", ("money",), "costs"),
    Question("Does the estimate say what a run of the SDK's clients costs?",
             "bench.money", ("money_runs",), "costs"),
    Question("How do Penstock and Kinesis compare on one emulator?",
             "bench.rivals", ("rivals",), "rivals", needs=STACK, quick=True),
    Question("What does a surge of appends meet, and which availability do AWS's agreements add up to?",
             "bench.scale.surge", ("surge",), "scale"),
    Question("What limits Penstock on AWS from 1 MB/s to 1 GB/s, by simulation?",
             "bench.scale", ("scale",), "scale"),
    Question("What is lost or doubled when consumers are killed?",
             "bench.group_kills", ("group_kills",), "proofs", needs=STACK),
    Question("How long do partitions pause when members restart in turn?",
             "bench.rolling_restart", ("rolling_restart",), "proofs", needs=STACK),
    Question("Does a ledger balance while its workers die?",
             "bench.ledger", ("ledger",), "proofs", needs=STACK),
    Question("What does a work queue keep while workers die, and who waits for a slow record?",
             "bench.share_groups", ("share_kills", "share_priorities", "share_slow_record"), "proofs", needs=STACK),
    Question("What is lost or doubled when a mirror takes over, and both sides are killed?",
             "bench.mirror_failover", ("mirror_failover",), "proofs"),
    Question("Does a streaming query keep each record once while it is killed?",
             "bench.spark.stream_kills", ("stream_kills",), "proofs", needs=SPARK),
    Question("How long do writes wait when a zone is lost, and when is it in sync again?",
             "pytest tests/end_to_end/jobs/test_zones.py", ("lost_zone",), "proofs"),
    Question("How fast does Spark read a topic?",
             "bench.spark.spark_read", ("spark_read",), "spark", needs=SPARK),
    Question("How fast are micro-batches of Spark?",
             "bench.spark.spark_stream", ("spark_stream",), "spark", needs=SPARK),
    Question("How fast does the archive job write, and replay?",
             "bench.spark.archive", ("archive",), "spark", needs=SPARK),
    Question("Does a real file come back from a new stack, byte for byte?",
             "bench.demo", ("demo",), "requests", needs=STACK),
)  # fmt: skip
