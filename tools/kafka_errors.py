"""`python -m tools.kafka_errors`: write the table of docs/reference/kafka-errors.md from the gateway's code.

A row has one of Penstock's codes, the code of Kafka that answers it, and the APIs that answer by another one. A test
compares the page with the code.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.errors import KafkaError, kafka_error
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.produce.produce import produce_error
from penstock_kafka.share.share_fetch import share_error
from penstock_kafka.transactions.refusals import transaction_error

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "kafka-errors.md"
BEGIN, END = "<!-- kafka errors -->", "<!-- end -->"
ROOMS: Mapping[str, Callable[[PenstockError], KafkaError]] = {
    "produce": produce_error,
    "groups": group_error,
    "transactions": lambda error: transaction_error(error, ApiKey.END_TXN),
    "share": share_error,
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--check", is_flag=True, help="Write nothing: fail if the page is another one.")
def main(check: bool) -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    wanted = page_with(table(), text)
    if check:
        sys.exit(0 if text == wanted else f"{PAGE.name} is not what the code says: python -m tools.kafka_errors")
    PAGE.write_text(wanted, encoding="utf-8")


def page_with(rows: str, text: str) -> str:
    """The page with these rows between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{rows}\n{END}{after}"


def table() -> str:
    """The table, one row for each of Penstock's codes."""
    head = "| Penstock's code | Kafka's code | number | clients try again | other codes |\n|---|---|---|---|---|\n"
    return head + "".join(_row(code) for code in ErrorCode)


def _row(code: ErrorCode) -> str:
    error = PenstockError(code, "")
    usual = kafka_error(error)
    others: dict[KafkaError, list[str]] = {}
    for room, answer in ROOMS.items():
        found = answer(error)
        if found is not usual:
            others.setdefault(found, []).append(room)
    shown = "; ".join(f"{', '.join(rooms)}: {_name(each)}" for each, rooms in others.items())
    again = "yes" if usual.retriable else "no"
    return f"| {code.name} | {_name(usual)} | {int(usual)} | {again} | {shown} |\n"


def _name(code: KafkaError) -> str:
    return code.name.upper()


if __name__ == "__main__":
    main()
