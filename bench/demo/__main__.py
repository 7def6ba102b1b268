"""Moves real data through the local stack: a text through a log, and work on files through a queue.

`make run` runs it. Exit code 0: every record of the log came back in its place, and the queue lost no work.
"""

import tempfile
from pathlib import Path

import click

from bench.demo.corpus import write_corpus
from bench.demo.log_demo import MB, show_log
from bench.demo.queue_demo import show_queue
from bench.report.recording import Report, reported


@click.command(help=__doc__)
@reported("demo")
def main(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, text_bytes = write_corpus(folder / "corpus")
        report.console.print(
            f"Text: Python's standard library, {lines:,} lines, {text_bytes / MB:.1f} MB; key: the source file."
        )
        show_log(report, folder, lines)
        show_queue(report, folder)


if __name__ == "__main__":
    main()
