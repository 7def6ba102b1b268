"""Prometheus' text format, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value with its labels."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All values of one metric. `help` is one line. The name of a counter ends in `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Sequence[Sample]


def exposition(families: Iterable[Family]) -> str:
    """The families as text, each with its help and its type, in the order given."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
