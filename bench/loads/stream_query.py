"""The query that bench.spark.stream_kills kills: it copies a topic, with each record's offset, until it is killed."""

from pathlib import Path

import click

import penstock_spark
from bench.loads.local_spark import local_session

FILES, TOPIC = "files", "topic"


@click.command(help=__doc__)
@click.option("--source", required=True, help="The topic to read.")
@click.option("--kind", required=True, type=click.Choice([FILES, TOPIC]), help="The kind of the sink.")
@click.option("--sink", required=True, help="A topic, or a folder.")
@click.option("--checkpoint", required=True, help="The query's folder, the same for all its lives.")
@click.option("--started", required=True, type=click.Path(path_type=Path), help="Made when the query has started.")
@click.option("--offsets-max", required=True, type=int, help="Most of a micro-batch.")
def main(source: str, kind: str, sink: str, checkpoint: str, started: Path, offsets_max: int) -> None:
    spark = local_session()
    penstock_spark.register(spark)
    stream = (
        spark.readStream.format("penstock")
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(offsets_max))
        .load()
    )
    if kind == FILES:
        rows = stream.selectExpr("partition", "offset", "cast(value as string) value")
        writer = rows.writeStream.format("parquet").option("path", sink)
    else:
        rows = stream.selectExpr("partition", "concat(offset, ' ', cast(value as string)) value")
        writer = rows.writeStream.format("penstock").option("topic", sink)
    query = writer.option("checkpointLocation", checkpoint).start()
    started.touch()
    query.awaitTermination()


if __name__ == "__main__":
    main()
