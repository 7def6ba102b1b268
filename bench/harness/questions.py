"""All questions that a bench answers: the command of each, the results that it writes, and its page.

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


STACK, TWO_STACKS, SPARK = "a local stack", "two local stacks", "Java"

QUESTIONS = (
    Question(
        asks="How does Penstock compare with Kinesis, SQS, Redis, RabbitMQ and NATS on one machine?",
        command="bench.rivals", results=("rivals",), page="rivals", needs=STACK, quick=True,
    ),
    Question(
        asks="How many appends a second does one partition take as producers grow, and what does the SDK do then?",
        command="bench.hot_partition",
        results=("hot_partition",),
        page="hot-partition",
        needs=STACK,
        quick=True,
    ),
    Question(
        asks="What do produce and fetch take: time, storage calls, CPU of the functions?",
        command="bench.stack", results=("stack",), page="requests", needs=STACK,
    ),
    Question(
        asks="How much CPU do the functions of two checkouts spend on the same requests?",
        command="bench.compare", results=("compare",), page="requests", needs=TWO_STACKS,
    ),
    Question(
        asks="What do access rules and quotas add to a produce?",
        command="bench.access_rules", results=("access_rules",), page="requests",
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
        asks="What do idempotence, groups and transactions add to plain produce?",
        command="bench.costs", results=("costs_idempotence", "costs_groups", "costs_transactions"), page="costs",
        needs=STACK,
    ),
    Question(
        asks="What is the price of a produce request, by its size?",
        command="bench.cost_model", results=("cost_model",), page="costs",
    ),
    Question(
        asks="What do many producers on one partition do to its head?",
        command="bench.crowded_head", results=("crowded_head",), page="costs",
    ),
    Question(
        asks="What does Penstock cost beside Kinesis, SQS, MSK and WarpStream?",
        command="bench.money", results=("money",), page="money",
    ),
    Question(
        asks="What limits Penstock on AWS from 1 MB/s to 1 GB/s, by simulation?",
        command="bench.scale", results=("scale",), page="scale",
    ),
    Question(
        asks="Does the simulation agree with the emulator under AWS's latencies?",
        command="bench.scale.emulator", results=("scale_emulator",), page="scale", needs=STACK,
    ),
    Question(
        asks="What does a waiting consumer cost, and how soon does it have a record?",
        command="bench.waiting", results=("waiting",), page="waiting", needs=STACK,
    ),
    Question(
        asks="How late do delayed records come while functions die?",
        command="bench.delays", results=("delays",), page="delays", needs=STACK,
    ),
    Question(
        asks="How many delayed records a second does one partition deliver?",
        command="bench.timers_model", results=("timers_model",), page="delays",
    ),
    Question(
        asks="What does a filter read, call and spend?",
        command="bench.filtering", results=("filtering",), page="filtering", needs=STACK,
    ),
    Question(
        asks="How long does a new function instance load?",
        command="bench.cold_start", results=("cold_start",), page="cold-start",
    ),
    Question(
        asks="How long does a producer inside a Lambda function take?",
        command="bench.lambda_producer", results=("lambda_producer",), page="cold-start", needs=STACK,
    ),
    Question(
        asks="How many records does a CPU second of the SDK's clients carry?",
        command="bench.clients.cpu",
        results=("client_cpu",),
        page="client-cpu",
        quick=True,
    ),
    Question(
        asks="What does OpenTelemetry add to a record?",
        command="bench.tracing", results=("tracing",), page="tracing",
    ),
    Question(
        asks="What CPU do warm produce and fetch take, apart from their calls to storage?",
        command="bench.handler_cpu", results=("handler_cpu",), page="requests",
    ),
    Question(
        asks="What does one put to S3 spend before it leaves?",
        command="bench.wire", results=("wire",), page="wire",
    ),
    Question(
        asks="How many records a second does the codec encode and decode?",
        command="bench.codec", results=("codec",), page="codec",
    ),
    Question(
        asks="What is lost or doubled when consumers are killed?",
        command="bench.group_kills", results=("group_kills",), page="groups", needs=STACK,
    ),
    Question(
        asks="How long do partitions pause when members restart in turn?",
        command="bench.rolling_restart", results=("rolling_restart",), page="groups", needs=STACK,
    ),
    Question(
        asks="Does a ledger balance while its workers die?",
        command="bench.ledger", results=("ledger",), page="exactly-once", needs=STACK,
    ),
    Question(
        asks="What does a work queue keep while workers die, records fail, and beside SQS?",
        command="bench.share_groups",
        results=("share_kills", "share_failing", "share_slow_record", "share_beside_sqs", "share_writes"),
        page="share-groups", needs=STACK,
    ),
    Question(
        asks="How many workers can share a topic on AWS?",
        command="bench.share_model", results=("share_model",), page="share-groups",
    ),
    Question(
        asks="What do subscriptions deliver while functions die and targets fail, how soon, and for how much?",
        command="bench.push",
        results=("push_kills", "push_failures", "push_latency", "push_idle", "push_price"),
        page="push", needs=STACK,
    ),
    Question(
        asks="How fast are Kafka's clients through the gateway, and what does it add?",
        command="bench.kafka",
        results=("kafka",),
        page="kafka",
    ),
    Question(
        asks="How soon does each page of the console paint with 1,000 topics and 200 groups?",
        command="bench.console", results=("console",), page="console", needs=STACK,
    ),
    Question(
        asks="What does one caller take from the others?",
        command="bench.neighbours",
        results=("neighbours_teams", "neighbours_exact", "neighbours_crowd"),
        page="neighbours", needs=TWO_STACKS,
    ),
    Question(
        asks="How soon does a record come that lies behind bombs, and in how much memory?",
        command="bench.bombs", results=("bombs",), page="neighbours",
    ),
    Question(
        asks="What does compaction cost, and what does it save a reader?",
        command="bench.compaction", results=("compaction",), page="compaction", needs=STACK,
    ),
    Question(
        asks="How many gets does a reader of many partitions need before compaction?",
        command="bench.shared_gets", results=("shared_gets",), page="compaction",
    ),
    Question(
        asks="How does a sweep of a large store end in its budget?",
        command="bench.sweep", results=("sweep",), page="compaction",
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
        asks="Does a streaming query keep each record once while it is killed?",
        command="bench.spark.stream_kills", results=("stream_kills",), page="exactly-once", needs=SPARK,
    ),
    Question(
        asks="How fast does the archive job write, and replay?",
        command="bench.spark.archive", results=("archive",), page="archive", needs=SPARK,
    ),
    Question(
        asks="How fast is the archive without Spark?",
        command="bench.spark.archive_alone", results=("archive_alone",), page="archive",
    ),
    Question(
        asks="How fast does Spark count records per hour?",
        command="bench.spark.analyze", results=("analyze",), page="analyze", needs=SPARK,
    ),
    Question(
        asks="Does a real file come back from a new stack, byte for byte?",
        command="bench.demo", results=("demo",), page="requests", needs=STACK,
    ),
)  # fmt: skip
